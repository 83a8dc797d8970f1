/**
 * Constrained decoding: the tokens that may come next so that the text stays within a grammar.
 *
 *     const allow = new Constraint(vocabularyOf(tokenizer), schemaGrammar(schema));
 *     allow.after([]);                         // ids that may begin the response
 */
import { AttuneError } from '../../errors.ts';
import type { Tokenizer } from '../tokenizer/tokenizer.ts';
import { type GrammarNode, matcher, type State } from './grammar.ts';

/** A vocabulary's tokens sorted by their bytes, so that tokens with a common prefix are neighbours. */
export interface Vocabulary {
  ids: Int32Array;
  bytes: readonly Uint8Array[];
  byId: ReadonlyMap<number, Uint8Array>;
  ends: readonly number[];
}

const vocabularies = new WeakMap<Tokenizer, Vocabulary>();

/**
 * A tokenizer's tokens as bytes, computed once per tokenizer. Special tokens are omitted, except those that end a turn.
 */
export function vocabularyOf(tokenizer: Tokenizer): Vocabulary {
  let made = vocabularies.get(tokenizer);
  if (made === undefined) {
    const byId = new Map<number, Uint8Array>();
    for (let id = 0; id < tokenizer.vocabSize; id++) {
      const bytes = tokenizer.isSpecial(id) ? undefined : tokenizer.tokenBytes(id);
      if (bytes !== undefined && bytes.length > 0) byId.set(id, bytes);
    }
    const sorted = [...byId].sort(([, a], [, b]) => Buffer.compare(a, b));
    made = {
      ids: Int32Array.from(sorted, ([id]) => id),
      bytes: sorted.map(([, bytes]) => bytes),
      byId,
      ends: tokenizer.eosIds,
    };
    vocabularies.set(tokenizer, made);
  }
  return made;
}

/** The tokens that may come next so that a response stays within a grammar; for `allow` of a request. */
export class Constraint {
  readonly #vocabulary: Vocabulary;
  readonly #start: State;
  readonly #allowed = new WeakMap<State, readonly number[]>();
  /** States of the longest responses so far, because the next call usually has one token more than an earlier one. */
  readonly #reached = new Map<string, State>();

  constructor(vocabulary: Vocabulary, grammar: GrammarNode) {
    this.#vocabulary = vocabulary;
    this.#start = matcher(grammar);
  }

  /** The ids that may follow a response's tokens; only end-of-turn ids once the text is complete. */
  after(ids: readonly number[]): readonly number[] {
    const state = this.#stateAfter(ids);
    let allowed = this.#allowed.get(state);
    if (allowed === undefined) {
      allowed = this.#allowedAt(state);
      this.#allowed.set(state, allowed);
    }
    return allowed;
  }

  /** Whether a response's tokens are a complete sentence of the grammar. */
  isWhole(ids: readonly number[]): boolean {
    return this.#stateAfter(ids).accepting;
  }

  #stateAfter(ids: readonly number[]): State {
    if (ids.length === 0) return this.#start;
    const key = ids.join();
    const known = this.#reached.get(key);
    if (known !== undefined) return known;
    const before = this.#reached.get(ids.slice(0, -1).join());
    let state: State | undefined = before ?? this.#start;
    for (const id of before === undefined ? ids : ids.slice(-1)) {
      if (this.#vocabulary.ends.includes(id)) continue;
      for (const byte of this.#vocabulary.byId.get(id) ?? []) state = state?.next(byte);
    }
    if (state === undefined) throw new AttuneError('A constrained response has left its grammar.');
    if (before !== undefined) this.#reached.delete(ids.slice(0, -1).join());
    this.#reached.set(key, state);
    return state;
  }

  #allowedAt(state: State): number[] {
    const found: number[] = [];
    const { ids, bytes, ends } = this.#vocabulary;
    /** Tokens low … high−1 share their first `depth` bytes, which lead to `here`. */
    const visit = (low: number, high: number, depth: number, here: State): void => {
      let at = low;
      while (at < high && (bytes[at] as Uint8Array).length === depth) found.push(ids[at++] as number);
      while (at < high) {
        const byte = (bytes[at] as Uint8Array)[depth] as number;
        let end = at + 1;
        while (end < high && (bytes[end] as Uint8Array)[depth] === byte) end++;
        const next = here.next(byte);
        if (next !== undefined) visit(at, end, depth + 1, next);
        at = end;
      }
    };
    if (!state.ended) visit(0, ids.length, 0, state);
    if (state.accepting) found.push(...ends);
    if (found.length === 0) throw new AttuneError('No token of this vocabulary can go on within the grammar.');
    return found;
  }
}
