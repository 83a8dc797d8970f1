/**
 * Added tokens ("<|im_end|>", "<s>", …) are matched before anything else: leftmost, then longest. `lstrip`/`rstrip`
 * include the white space around a token, `single_word` requires word boundaries.
 */
import type { AddedToken } from './files.ts';

export interface Section {
  start: number;
  end: number;
  /** Set where the section is one added token. */
  id?: number;
}

// \w and \s as in the Rust package: JavaScript's \w has fewer letters, and its \s includes U+FEFF.
const WORD_BEFORE = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]$/u;
const WORD_AFTER = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;
const SPACE = /\p{White_Space}/u;

export class AddedTokens {
  readonly #tokens = new Map<string, AddedToken>();
  readonly #pattern: RegExp | undefined;

  constructor(tokens: readonly AddedToken[]) {
    for (const token of tokens) if (token.content !== '') this.#tokens.set(token.content, token);
    const longestFirst = [...this.#tokens.keys()].sort((a, b) => b.length - a.length);
    if (longestFirst.length > 0) this.#pattern = new RegExp(longestFirst.map(literal).join('|'), 'g');
  }

  split(text: string): Section[] {
    if (text === '') return [];
    if (this.#pattern === undefined) return [{ start: 0, end: text.length }];
    const sections: Section[] = [];
    let done = 0;
    for (const match of text.matchAll(this.#pattern)) {
      const token = this.#tokens.get(match[0]) as AddedToken;
      let start = match.index;
      let end = start + match[0].length;
      if (start < done) continue;
      if (token.single_word && (WORD_BEFORE.test(text.slice(0, start)) || WORD_AFTER.test(text.slice(end)))) continue;
      if (token.lstrip) while (start > done && SPACE.test(text.charAt(start - 1))) start--;
      if (token.rstrip) while (end < text.length && SPACE.test(text.charAt(end))) end++;
      if (start > done) sections.push({ start: done, end: start });
      sections.push({ start, end, id: token.id });
      done = end;
    }
    if (done < text.length) sections.push({ start: done, end: text.length });
    return sections;
  }
}

function literal(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}
