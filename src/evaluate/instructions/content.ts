/** Instructions about what a response says: keywords, letters, words, sentences, case, how it starts and ends. */
import { RowProblem } from '../../data/shapes/messages.ts';
import { count, type Settings, text, texts, within } from './settings.ts';
import { isLower, isUpper, literal, sentenceCount, tokens, wordCount } from './text-units.ts';

/** Whether a response follows an instruction. */
export type Check = (response: string, settings: Settings) => boolean;

const occurrences = (response: string, pattern: string) => response.match(new RegExp(pattern, 'giu'))?.length ?? 0;
/** Matches the whole word, in any alphabet. */
const whole = (word: string) => `(?<![\\p{L}\\p{N}_])${literal(word)}(?![\\p{L}\\p{N}_])`;

export const contentChecks: Readonly<Record<string, Check>> = {
  'keywords:existence': (response, settings) =>
    texts(settings, 'keywords').every((keyword) => occurrences(response, literal(keyword)) > 0),
  'keywords:frequency': (response, settings) =>
    within(occurrences(response, literal(text(settings, 'keyword').trim())), settings, 'relation', 'frequency'),
  'keywords:forbidden_words': (response, settings) =>
    !texts(settings, 'forbidden_words').some((word) => occurrences(response, whole(word)) > 0),
  'keywords:letter_frequency': (response, settings) => {
    const letter = text(settings, 'letter').toLowerCase();
    if ([...letter].length !== 1)
      throw new RowProblem(`an instruction's "letter" must be one letter, this is "${letter}"`);
    return within(response.toLowerCase().split(letter).length - 1, settings, 'let_relation', 'let_frequency');
  },
  'length_constraints:number_words': (response, settings) =>
    within(wordCount(response), settings, 'relation', 'num_words'),
  'length_constraints:number_sentences': (response, settings) =>
    within(sentenceCount(response), settings, 'relation', 'num_sentences'),
  'change_case:english_capital': isUpper,
  'change_case:english_lowercase': isLower,
  'change_case:capital_word_frequency': (response, settings) =>
    within(tokens(response).filter(isUpper).length, settings, 'capital_relation', 'capital_frequency'),
  'punctuation:no_comma': (response) => !response.includes(','),
  'startend:end_checker': (response, settings) =>
    response
      .trim()
      .replace(/^"+|"+$/g, '')
      .toLowerCase()
      .endsWith(text(settings, 'end_phrase').trim().toLowerCase()),
  'startend:quotation': (response) => /^".*"$/s.test(response.trim()) && response.trim().length > 1,
  'combination:repeat_prompt': (response, settings) =>
    response.trim().toLowerCase().startsWith(text(settings, 'prompt_to_repeat').trim().toLowerCase()),
  'detectable_content:number_placeholders': (response, settings) =>
    (response.match(/\[.*?\]/g)?.length ?? 0) >= count(settings, 'num_placeholders'),
  'detectable_content:postscript': (response, settings) => {
    const marker = text(settings, 'postscript_marker').trim();
    const pattern = { 'P.P.S': 'p\\.\\s?p\\.\\s?s', 'P.S.': 'p\\.\\s?s\\.' }[marker] ?? literal(marker.toLowerCase());
    return new RegExp(pattern).test(response.toLowerCase());
  },
};
