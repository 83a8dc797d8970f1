/**
 * Finds the answer in a response: the content of the last `<answer>…</answer>`. In a response without tags it is the
 * last number or the last line after the thinking, whichever the task asks for.
 *
 *     readNumber('3+4=7, so it is 7.')                  // { value: '7', tidy: true }
 *     readLine('<think>…</think>\nThe answer is: tac.')   // 'tac'
 */

/** The text inside the last complete pair of answer tags. */
export function taggedAnswer(response: string): string | undefined {
  const close = response.lastIndexOf('</answer>');
  if (close < 0) return undefined;
  const open = response.lastIndexOf('<answer>', close);
  return open < 0 ? undefined : response.slice(open + '<answer>'.length, close).trim();
}

/** The text after the thinking. Thinking that never ended (a response that was cut) leaves nothing. */
export function afterThinking(response: string): string {
  const close = response.lastIndexOf('</think>');
  if (close >= 0) return response.slice(close + '</think>'.length);
  return response.includes('<think>') ? '' : response;
}

/** The answer as a line: the last line that is not blank, without "The answer is", quotes, emphasis and full stop. */
export function readLine(response: string): string | undefined {
  const tagged = taggedAnswer(response);
  if (tagged !== undefined) return bare(tagged);
  const lines = afterThinking(response).split('\n');
  const last = lines.findLast((line) => line.trim() !== '');
  return last === undefined ? undefined : bare(last.replace(/^.*\banswer\b(?:\s+is\b)?\s*:?/i, ''));
}

/** A number read from a response. */
export interface ReadNumber {
  /** In canonical form: no plus sign, no thousands commas, no leading zeros, no zeros after the point. */
  value: string;
  /** False where the tags held several numbers, so that the answer is the last of a list. */
  tidy: boolean;
}

/** The number in the answer tags, or else the last number after the thinking. */
export function readNumber(response: string): ReadNumber | undefined {
  const tagged = taggedAnswer(response);
  const numbers = numbersIn(tagged ?? afterThinking(response));
  const value = numbers.at(-1);
  return value === undefined ? undefined : { value, tidy: tagged === undefined || numbers.length === 1 };
}

/**
 * 1 for the right number, 0.5 where the tags hold several numbers and the last is right (an untidy answer, such as
 * "3+4=7"), 0 otherwise.
 */
export function scoreNumber(response: string, answer: string): number {
  const read = readNumber(response);
  if (read === undefined || read.value !== canonicalNumber(answer)) return 0;
  return read.tidy ? 1 : 0.5;
}

/** 1 for the right words; case and spacing do not matter. */
export function scoreLine(response: string, answer: string): number {
  const line = readLine(response);
  return line !== undefined && squeeze(line) === squeeze(answer) ? 1 : 0;
}

/**
 * For answers that are a list: 1 when all items are right and in order; otherwise half the share of places that hold
 * the right item, and nothing when the number of items is wrong.
 */
export function scoreItems(items: readonly string[], answer: readonly string[]): number {
  if (items.length !== answer.length || answer.length === 0) return 0;
  const right = answer.filter((item, i) => item === items[i]).length;
  return right === answer.length ? 1 : (0.5 * right) / answer.length;
}

export function squeeze(text: string): string {
  return text.trim().toLowerCase().replace(/\s+/g, ' ');
}

const number = /(?<![\w.])(?:(?<![\d)]\s?|-)-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)/g;

/**
 * All numbers in a text, in canonical form. A sign belongs to a number only where no operand stands before it ("5-3"
 * has 5 and 3). Digits inside a word ("r1c2") are no numbers.
 */
export function numbersIn(text: string): string[] {
  const found = text.replaceAll('\u2212', '-').matchAll(number);
  return Array.from(found, (match) => canonicalNumber(match[0]));
}

function canonicalNumber(text: string): string {
  const [whole = '', fraction = ''] = text.replaceAll(',', '').split('.');
  const negative = whole.startsWith('-');
  const digits = whole.replace(/^[-+]?0*(?=\d)/, '');
  const rest = fraction.replace(/0+$/, '');
  const magnitude = rest === '' ? digits : `${digits}.${rest}`;
  return negative && magnitude !== '0' ? `-${magnitude}` : magnitude;
}

function bare(text: string): string {
  return text
    .trim()
    .replace(/^[\s"'`*]+|[\s"'`*.]+$/g, '')
    .trim();
}
