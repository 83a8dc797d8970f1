/**
 * Byte-pair encoding of one piece of text (Sennrich et al. 2016): start from single characters and repeatedly apply the
 * merge of lowest rank among neighbours. The rules for unknown characters (byte fallback, unk fusing, `ignore_merges`)
 * are those of Hugging Face's `tokenizers`, whose own encode is asynchronous only; this one is synchronous and caches
 * pieces, which makes it several times faster on ordinary text.
 */
import { Heap } from './heap.ts';

export interface BpeModel {
  vocab: Record<string, number>;
  merges: (string | [string, string])[];
  unk_token?: string | null;
  continuing_subword_prefix?: string | null;
  end_of_word_suffix?: string | null;
  fuse_unk?: boolean;
  byte_fallback?: boolean;
  ignore_merges?: boolean;
}

/** Tokens of a piece, with how many UTF-16 units of the piece each one covers. */
export interface PieceTokens {
  ids: number[];
  lengths: number[];
}

const PAIR = 2 ** 24;
const CACHE_ENTRIES = 65_536;
const CACHE_PIECE_LENGTH = 64;

export class Bpe {
  readonly #vocab = new Map<string, number>();
  /** left · 2²⁴ + right → rank · 2²⁴ + merged id */
  readonly #merges = new Map<number, number>();
  readonly #model: BpeModel;
  readonly #cache = new Map<string, readonly number[]>();

  constructor(model: BpeModel) {
    this.#model = model;
    for (const token in model.vocab) this.#vocab.set(token, model.vocab[token] as number);
    const prefixLength = model.continuing_subword_prefix?.length ?? 0;
    model.merges.forEach((merge, rank) => {
      const [left, right] = typeof merge === 'string' ? splitMerge(merge) : merge;
      const a = this.#vocab.get(left);
      const b = this.#vocab.get(right);
      const merged = this.#vocab.get(left + right.slice(prefixLength));
      if (a === undefined || b === undefined || merged === undefined) {
        throw new Error(
          `merge ${rank} joins "${left}" and "${right}", but the vocabulary lacks one of them or the result`,
        );
      }
      this.#merges.set(a * PAIR + b, rank * PAIR + merged);
    });
  }

  encode(piece: string): readonly number[] {
    const known = this.#cache.get(piece);
    if (known !== undefined) return known;
    const { ids } = this.encodeWithLengths(piece);
    if (piece.length <= CACHE_PIECE_LENGTH) {
      if (this.#cache.size >= CACHE_ENTRIES) this.#cache.clear();
      this.#cache.set(piece, ids);
    }
    return ids;
  }

  encodeWithLengths(piece: string): PieceTokens {
    if (this.#model.ignore_merges) {
      const whole = this.#vocab.get(piece);
      if (whole !== undefined) return { ids: [whole], lengths: [piece.length] };
    }
    return this.#merge(this.#symbols(piece));
  }

  #symbols(piece: string): PieceTokens {
    const { continuing_subword_prefix: prefix, end_of_word_suffix: suffix, fuse_unk: fuse } = this.#model;
    const unk = this.#model.unk_token == null ? undefined : this.#vocab.get(this.#model.unk_token);
    const ids: number[] = [];
    const lengths: number[] = [];
    let lastIsUnknown = false;
    let position = 0;
    for (const char of piece) {
      const start = position;
      position += char.length;
      let symbol = char;
      if (prefix && start > 0) symbol = prefix + symbol;
      if (suffix && position === piece.length) symbol += suffix;
      const id = this.#vocab.get(symbol);
      if (id !== undefined) {
        ids.push(id);
        lengths.push(char.length);
        lastIsUnknown = false;
        continue;
      }
      const bytes = this.#model.byte_fallback ? this.#bytes(symbol) : undefined;
      if (bytes !== undefined) {
        bytes.forEach((byte, i) => {
          ids.push(byte);
          lengths.push(i === bytes.length - 1 ? char.length : 0);
        });
        lastIsUnknown = false;
      } else if (unk !== undefined) {
        if (fuse && lastIsUnknown) {
          lengths[lengths.length - 1] = (lengths.at(-1) ?? 0) + char.length;
        } else {
          ids.push(unk);
          lengths.push(char.length);
        }
        lastIsUnknown = true;
      } else if (lengths.length > 0) {
        // Without an unk token an unknown character is dropped; the token before it covers its place in the text.
        lengths[lengths.length - 1] = (lengths.at(-1) ?? 0) + char.length;
      }
    }
    return { ids, lengths };
  }

  #bytes(symbol: string): number[] | undefined {
    const ids: number[] = [];
    for (const byte of new TextEncoder().encode(symbol)) {
      const id = this.#vocab.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
      if (id === undefined) return undefined;
      ids.push(id);
    }
    return ids;
  }

  #merge({ ids, lengths }: PieceTokens): PieceTokens {
    return ids.length <= 48 ? this.#mergeShort(ids, lengths) : this.#mergeLong(ids, lengths);
  }

  /** Scans every pair in each round: quadratic, but fastest for a single word. */
  #mergeShort(ids: number[], lengths: number[]): PieceTokens {
    while (ids.length > 1) {
      let best = Number.POSITIVE_INFINITY;
      let at = -1;
      for (let i = 0; i + 1 < ids.length; i++) {
        const merge = this.#merges.get((ids[i] as number) * PAIR + (ids[i + 1] as number));
        if (merge !== undefined && merge < best) {
          best = merge;
          at = i;
        }
      }
      if (at < 0) break;
      ids[at] = best % PAIR;
      lengths[at] = (lengths[at] as number) + (lengths[at + 1] as number);
      ids.splice(at + 1, 1);
      lengths.splice(at + 1, 1);
    }
    return { ids, lengths };
  }

  /** A linked list and a heap of (rank, place): n log n, for tokenizers that see a whole document as one piece. */
  #mergeLong(ids: number[], lengths: number[]): PieceTokens {
    const n = ids.length;
    const next = Int32Array.from({ length: n }, (_, i) => (i + 1 < n ? i + 1 : -1));
    const previous = Int32Array.from({ length: n }, (_, i) => i - 1);
    const alive = new Uint8Array(n).fill(1);
    // Smallest merge first; equal merges from left to right.
    const heap = new Heap<{ merge: number; place: number }>((a, b) =>
      a.merge === b.merge ? a.place < b.place : a.merge < b.merge,
    );
    const offer = (left: number) => {
      const right = left < 0 ? -1 : (next[left] as number);
      if (right < 0) return;
      const merge = this.#merges.get((ids[left] as number) * PAIR + (ids[right] as number));
      if (merge !== undefined) heap.push({ merge, place: left });
    };
    for (let i = 0; i + 1 < n; i++) offer(i);
    for (let top = heap.pop(); top !== undefined; top = heap.pop()) {
      const { merge, place } = top;
      const right = next[place] as number;
      if (!alive[place] || right < 0) continue;
      if (this.#merges.get((ids[place] as number) * PAIR + (ids[right] as number)) !== merge) continue;
      ids[place] = merge % PAIR;
      lengths[place] = (lengths[place] as number) + (lengths[right] as number);
      alive[right] = 0;
      const after = next[right] as number;
      next[place] = after;
      if (after >= 0) previous[after] = place;
      offer(previous[place] as number);
      offer(place);
    }
    const kept = (_: number, i: number) => alive[i] === 1;
    return { ids: ids.filter(kept), lengths: lengths.filter(kept) };
  }
}

/** Older tokenizer.json files write a merge as "left right"; a token itself never holds a space there. */
function splitMerge(merge: string): [string, string] {
  const space = merge.indexOf(' ', 1);
  return [merge.slice(0, space), merge.slice(space + 1)];
}
