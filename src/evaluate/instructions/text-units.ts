/** Words, sentences and letter case, as the instruction checks count them. */

/** Runs of letters, digits and underscores. */
export const wordCount = (text: string) => text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0;

const abbreviations = /\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|inc|ltd|co|jr|sr|no|fig|approx|a\.m|p\.m|u\.s)\.$/i;

/**
 * Sentences: pieces that end in ".", "!" or "?" (with closing quotes and brackets) before white space or at the end of
 * the text. Abbreviations, initials and numbers such as "3." do not end a sentence. The published scores use NLTK's
 * Punkt, which differs on rare abbreviations.
 */
export function sentenceCount(text: string): number {
  let count = 0;
  let start = 0;
  for (const match of text.matchAll(/[.!?]+["'”’)\]*]*(?=\s|$)/g)) {
    const end = match.index + match[0].length;
    const piece = text.slice(start, end).trim();
    if (match[0].startsWith('.') && (abbreviations.test(piece) || /(?:^|\s)(?:\p{Lu}|\d+)\.$/u.test(piece))) continue;
    if (/[\p{L}\p{N}]/u.test(piece)) count++;
    start = end;
  }
  return count + (/[\p{L}\p{N}]/u.test(text.slice(start)) ? 1 : 0);
}

/** All cased letters are upper case, and there is at least one. */
export const isUpper = (text: string) => text !== text.toLowerCase() && text === text.toUpperCase();

/** All cased letters are lower case, and there is at least one. */
export const isLower = (text: string) => text !== text.toUpperCase() && text === text.toLowerCase();

/** The words between white space and dashes, without surrounding punctuation. */
export const tokens = (text: string) =>
  text
    .split(/[\s–—/]+/)
    .map((word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, ''))
    .filter((word) => word !== '');

/** A pattern that matches a text literally. */
export const literal = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
