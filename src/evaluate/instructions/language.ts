/**
 * A response's language, where its script tells it. IFEval asks a statistical detector (langdetect); of its languages these
 * eleven share their script with no other that the detector knows. The rest (Latin, Cyrillic, Arabic and Devanagari scripts)
 * would need such a detector and are left undecided.
 */
import type { Check } from './content.ts';
import { type Settings, text } from './settings.ts';

const scripts: Readonly<Record<string, RegExp>> = {
  bn: /\p{Script=Bengali}/gu,
  gu: /\p{Script=Gujarati}/gu,
  he: /\p{Script=Hebrew}/gu,
  // Japanese writes Chinese characters too; a text with kana is Japanese.
  ja: /[\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Han}]/gu,
  kn: /\p{Script=Kannada}/gu,
  ko: /\p{Script=Hangul}/gu,
  ml: /\p{Script=Malayalam}/gu,
  pa: /\p{Script=Gurmukhi}/gu,
  ta: /\p{Script=Tamil}/gu,
  te: /\p{Script=Telugu}/gu,
  th: /\p{Script=Thai}/gu,
};

/** Whether the script decides the language that is asked for. */
export const tellsLanguage = ({ language }: Settings): boolean =>
  typeof language === 'string' && Object.hasOwn(scripts, language);

const count = (response: string, pattern: RegExp) => response.match(pattern)?.length ?? 0;

/** Most letters are of the language's script. */
export const isInLanguage: Check = (response, settings) => {
  const language = text(settings, 'language');
  if (language === 'ja' && !/[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(response)) return false;
  return 2 * count(response, scripts[language] as RegExp) > count(response, /\p{L}|\p{M}/gu);
};
