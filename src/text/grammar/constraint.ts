/**
 * Constrained decoding: the tokens that may come next so that the text stays within a grammar.
 *
 *     const allow = constraint(vocabularyOf(tokenizer), schemaGrammar(schema));
 *     allow.after([]);                         // ids that may begin the response
 */
import { AttuneError } from '../../errors.ts';
import type { Tokenizer } from '../tokenizer/tokenizer.ts';
import { type GrammarNode, matcher, type State } from './grammar.ts';

/** A vocabulary's tokens in the order of their bytes, so that those with a common beginning are neighbours. */
export interface Vocabulary {
  ids: Int32Array;
  bytes: readonly Uint8Array[];
  byId: ReadonlyMap<number, Uint8Array>;
  ends: readonly number[];
}

const vocabularies = new WeakMap<Tokenizer, Vocabulary>();

/** Made once for each tokenizer. Special tokens write nothing and are left out, but for those that end a turn. */
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

export class Constraint {
  readonly #vocabulary: Vocabulary;
  readonly #start: State;
  readonly #allowed = new WeakMap<State, readonly number[]>();
  /** Where the longest responses asked for so far stand: the next question is mostly one token longer. */
  readonly #reached = new Map<string, State>();

  constructor(vocabulary: Vocabulary, grammar: GrammarNode) {
    this.#vocabulary = vocabulary;
    this.#start = matcher(grammar);
  }

  /** The ids that may follow a response's tokens; only those that end the turn once nothing can follow. */
  after(ids: readonly number[]): readonly number[] {
    const state = this.#stateAfter(ids);
    let allowed = this.#allowed.get(state);
    if (allowed === undefined) {
      allowed = this.#allowedAt(state);
      this.#allowed.set(state, allowed);
    }
    return allowed;
  }

  /** Whether a response's tokens are a whole sentence of the grammar. */
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
    /** Tokens low … high−1 agree in their first `depth` bytes, which lead to `here`. */
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
