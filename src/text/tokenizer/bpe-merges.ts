/**
 * Learns the merges of byte-pair encoding: merge the most frequent pair of neighbours, count again, until the
 * vocabulary is full. Ties go to the pair with the smaller ids, as in Hugging Face's trainer, so that the same words
 * give the same merges. Counts are updated incrementally: only words with the merged pair are visited again.
 */
import { Heap } from './heap.ts';

export interface LearnOptions {
  /** Symbols that words are spelled in; their ids start at `firstId`, in this order. */
  alphabet: readonly string[];
  firstId: number;
  /** New ids stay below this. */
  vocabSize: number;
  /** Pairs less frequent than this are not merged. */
  minFrequency: number;
  onMerge?: (done: number) => void | Promise<void>;
}

export interface LearntMerges {
  /** Token → id, the alphabet included. */
  vocab: Map<string, number>;
  merges: [string, string][];
}

interface Word {
  ids: number[];
  count: number;
}

const PAIR = 2 ** 24;
export const MERGES_BETWEEN_PAUSES = 256;

export async function learnMerges(
  wordCounts: ReadonlyMap<string, number>,
  options: LearnOptions,
): Promise<LearntMerges> {
  const vocab = new Map<string, number>();
  const tokens: string[] = [];
  const add = (token: string): number => {
    const id = vocab.get(token) ?? options.firstId + tokens.length;
    if (!vocab.has(token)) {
      vocab.set(token, id);
      tokens.push(token);
    }
    return id;
  };
  for (const symbol of options.alphabet) add(symbol);
  const words: Word[] = [];
  for (const [word, count] of wordCounts)
    words.push({ ids: [...word].map((char) => vocab.get(char) as number), count });

  const pairs = new PairCounts();
  words.forEach((word, i) => {
    pairs.add(word, i);
  });
  pairs.queueTouched();
  const merges: [string, string][] = [];
  while (options.firstId + tokens.length < options.vocabSize) {
    const best = pairs.takeCommonest();
    if (best === undefined || best.count < Math.max(1, options.minFrequency)) break;
    const left = Math.floor(best.pair / PAIR);
    const right = best.pair % PAIR;
    const names: [string, string] = [
      tokens[left - options.firstId] as string,
      tokens[right - options.firstId] as string,
    ];
    merges.push(names);
    const merged = add(names.join(''));
    for (const i of best.words) {
      const word = words[i] as Word;
      pairs.remove(word);
      word.ids = joined(word.ids, left, right, merged);
      pairs.add(word, i);
    }
    pairs.drop(best.pair);
    pairs.queueTouched();
    if (merges.length % MERGES_BETWEEN_PAUSES === 0) await options.onMerge?.(MERGES_BETWEEN_PAUSES);
  }
  return { vocab, merges };
}

function joined(ids: readonly number[], left: number, right: number, merged: number): number[] {
  const result: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    const hit = ids[i] === left && ids[i + 1] === right;
    result.push(hit ? merged : (ids[i] as number));
    if (hit) i++;
  }
  return result;
}

/** The count of each pair of neighbours, the words it occurs in, and the most frequent pair. */
class PairCounts {
  readonly #counts = new Map<number, number>();
  readonly #words = new Map<number, Set<number>>();
  readonly #heap = new Heap<{ pair: number; count: number }>((a, b) =>
    a.count === b.count ? a.pair < b.pair : a.count > b.count,
  );
  readonly #touched = new Set<number>();

  add(word: Word, index: number): void {
    for (let i = 0; i + 1 < word.ids.length; i++) {
      const pair = (word.ids[i] as number) * PAIR + (word.ids[i + 1] as number);
      this.#counts.set(pair, (this.#counts.get(pair) ?? 0) + word.count);
      let words = this.#words.get(pair);
      if (words === undefined) {
        words = new Set();
        this.#words.set(pair, words);
        this.#touched.add(pair);
      }
      words.add(index);
    }
  }

  remove(word: Word): void {
    for (let i = 0; i + 1 < word.ids.length; i++) {
      const pair = (word.ids[i] as number) * PAIR + (word.ids[i + 1] as number);
      this.#counts.set(pair, (this.#counts.get(pair) ?? 0) - word.count);
    }
  }

  drop(pair: number): void {
    this.#counts.delete(pair);
    this.#words.delete(pair);
    this.#touched.delete(pair);
  }

  /**
   * Adds new pairs to the heap. Counts of known pairs only fall; takeCommonest corrects them when they reach the top.
   */
  queueTouched(): void {
    for (const pair of this.#touched) this.#heap.push({ pair, count: this.#counts.get(pair) ?? 0 });
    this.#touched.clear();
  }

  takeCommonest(): { pair: number; count: number; words: Set<number> } | undefined {
    for (let top = this.#heap.pop(); top !== undefined; top = this.#heap.pop()) {
      const count = this.#counts.get(top.pair) ?? 0;
      if (count === top.count && count > 0) return { ...top, words: this.#words.get(top.pair) ?? new Set() };
      if (count > 0) this.#heap.push({ pair: top.pair, count });
    }
    return undefined;
  }
}
