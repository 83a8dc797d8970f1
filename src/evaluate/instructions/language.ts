/**
 * A response's language, judged by its script. IFEval uses a statistical detector (langdetect). Of its languages, these
 * eleven share their script with no other that the detector knows. The rest (Latin, Cyrillic, Arabic and Devanagari
 * scripts) would need such a detector and are not checked.
 */
import type { Check } from './content.ts';
import { type Settings, text } from './settings.ts';

const scripts: Readonly<Record<string, RegExp>> = {
  bn: /\p{Script=Bengali}/gu,
  gu: /\p{Script=Gujarati}/gu,
  he: /\p{Script=Hebrew}/gu,
  // Japanese also uses Chinese characters. A text with kana is Japanese.
  ja: /[\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Han}]/gu,
  kn: /\p{Script=Kannada}/gu,
  ko: /\p{Script=Hangul}/gu,
  ml: /\p{Script=Malayalam}/gu,
  pa: /\p{Script=Gurmukhi}/gu,
  ta: /\p{Script=Tamil}/gu,
  te: /\p{Script=Telugu}/gu,
  th: /\p{Script=Thai}/gu,
};

/** Whether the script identifies the requested language. */
export const tellsLanguage = ({ language }: Settings): boolean =>
  typeof language === 'string' && Object.hasOwn(scripts, language);

const count = (response: string, pattern: RegExp) => response.match(pattern)?.length ?? 0;

/** Whether most letters are of the language's script. */
export const isInLanguage: Check = (response, settings) => {
  const language = text(settings, 'language');
  if (language === 'ja' && !/[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(response)) return false;
  return 2 * count(response, scripts[language] as RegExp) > count(response, /\p{L}|\p{M}/gu);
};
