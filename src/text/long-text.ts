import type { Tokenizer } from './tokenizer/tokenizer.ts';

/**
 * Whether a text is far longer than this many tokens, judged only by its beginning: a tool may return a whole file,
 * which takes a tokenizer seconds. The cut may change a few tokens, so a close case is false.
 */
export function isFarLonger(tokenizer: Pick<Tokenizer, 'encode'>, text: string, tokens: number): boolean {
  const many = 2 * tokens + 64;
  const most = 16 * many;
  return text.length > most && tokenizer.encode(text.slice(0, most)).length > many;
}
