import type { Tokenizer } from './tokenizer/tokenizer.ts';

/**
 * Whether a text is far longer than this many tokens, judged by its beginning alone: a tool may return a whole file, and a
 * tokenizer takes seconds for it. Where the text was cut a few tokens may be others, so that it says no where it is close.
 */
export function isFarLonger(tokenizer: Pick<Tokenizer, 'encode'>, text: string, tokens: number): boolean {
  const many = 2 * tokens + 64;
  const most = 16 * many;
  return text.length > most && tokenizer.encode(text.slice(0, most)).length > many;
}
