/**
 * Turns text into token ids synchronously, by the steps of tokenizer.json: split off added tokens, normalise, split
 * into pieces, merge. Normaliser and pre-tokenizer are the native package's own objects.
 */
import { Tokenizer as NativeTokenizer, type Normalizer, type PreTokenizer } from 'tokenizers';
import { AddedTokens } from './added-tokens.ts';
import { type AsciiSplitter, asciiByteLetters, asciiSplitter, isAscii } from './ascii-split.ts';
import { Bpe } from './bpe.ts';
import type { AddedToken, TokenizerJson } from './files.ts';
import { RecentSections } from './recent-sections.ts';

/** Ids of a text and, for each requested position (in UTF-16 units), how many tokens end at or before it. */
export interface CutEncoding {
  ids: number[];
  tokensBefore: number[];
}

export class Encoder {
  readonly #bpe: Bpe;
  readonly #raw: AddedTokens;
  readonly #normalised: AddedTokens;
  readonly #normalizer: Normalizer | null;
  readonly #preTokenizer: PreTokenizer | null;
  readonly #laterPreTokenizer: PreTokenizer | null;
  readonly #bytePieces: boolean;
  readonly #splitAscii: AsciiSplitter | undefined;
  readonly #recent = new RecentSections();

  constructor(json: TokenizerJson, native: NativeTokenizer) {
    this.#bpe = new Bpe(json.model);
    this.#normalizer = native.getNormalizer();
    this.#preTokenizer = native.getPreTokenizer();
    this.#laterPreTokenizer = preTokenizerAfterStart(json.pre_tokenizer) ?? this.#preTokenizer;
    this.#bytePieces = mentionsByteLevel(json.pre_tokenizer);
    this.#splitAscii = asciiSplitter(json.pre_tokenizer);
    const normalised = (token: AddedToken) => ({ ...token, content: this.#normalise(token.content) });
    this.#raw = new AddedTokens(json.added_tokens.filter((token) => !token.normalized));
    this.#normalised = new AddedTokens(json.added_tokens.filter((token) => token.normalized).map(normalised));
  }

  encode(text: string): number[] {
    return this.encodeWithCuts(text, []).ids;
  }

  /** The ids of a text in which names of added tokens are plain text. */
  encodePlain(text: string): number[] {
    const ids: number[] = [];
    this.#encodePart(this.#normalise(text.toWellFormed()), 0, this.#laterPreTokenizer, [], [], ids);
    return ids;
  }

  encodeWithCuts(text: string, cuts: readonly number[]): CutEncoding {
    const whole = text.toWellFormed();
    const ids: number[] = [];
    const tokensBefore = new Array<number>(cuts.length).fill(0);
    for (const section of this.#raw.split(whole)) {
      const before = ids.length;
      const inside = cuts.flatMap((cut, i) => (cut > section.start && cut < section.end ? [i] : []));
      if (section.id !== undefined) {
        ids.push(section.id);
        for (const i of inside) tokensBefore[i] = before;
      } else {
        const source = whole.slice(section.start, section.end);
        const atStart = section.start === 0;
        if (inside.length === 0)
          pushAll(
            ids,
            this.#recent.idsOf(source, atStart, () => this.#idsOf(source, atStart)),
          );
        else {
          const normalised = this.#normalise(source);
          const places = inside.map((i) =>
            this.#placeAfterNormalising(source, normalised, (cuts[i] as number) - section.start),
          );
          const preTokenizer = atStart ? this.#preTokenizer : this.#laterPreTokenizer;
          this.#encodeNormalised(normalised, preTokenizer, places, ids).forEach((count, k) => {
            tokensBefore[inside[k] as number] = count;
          });
        }
      }
      cuts.forEach((cut, i) => {
        if (cut >= section.end) tokensBefore[i] = ids.length;
      });
    }
    return { ids, tokensBefore };
  }

  /** The ids of a section without added tokens. */
  #idsOf(source: string, atStart: boolean): number[] {
    const ids: number[] = [];
    const preTokenizer = atStart ? this.#preTokenizer : this.#laterPreTokenizer;
    this.#encodeNormalised(this.#normalise(source), preTokenizer, [], ids);
    return ids;
  }

  #normalise(text: string): string {
    return this.#normalizer === null ? text : this.#normalizer.normalizeString(text);
  }

  /** The native normaliser keeps no alignment, so a position is found by normalising the text before (or after) it. */
  #placeAfterNormalising(source: string, normalised: string, place: number): number {
    if (normalised === source) return place;
    const head = this.#normalise(source.slice(0, place));
    if (normalised.startsWith(head)) return head.length;
    return Math.max(0, normalised.length - this.#normalise(source.slice(place)).length);
  }

  #encodeNormalised(text: string, atStart: PreTokenizer | null, places: readonly number[], ids: number[]): number[] {
    const counts = new Array<number>(places.length).fill(ids.length);
    for (const section of this.#normalised.split(text)) {
      if (section.id !== undefined) {
        ids.push(section.id);
        this.#count(places, counts, section.end, ids.length);
        continue;
      }
      const part = text.slice(section.start, section.end);
      const preTokenizer = section.start === 0 ? atStart : this.#laterPreTokenizer;
      this.#encodePart(part, section.start, preTokenizer, places, counts, ids);
    }
    return counts;
  }

  /** Encodes a part without added tokens, which begins at `start`. */
  #encodePart(
    part: string,
    start: number,
    preTokenizer: PreTokenizer | null,
    places: readonly number[],
    counts: number[],
    ids: number[],
  ): void {
    if (preTokenizer === null) {
      this.#encodePiece(part, part, start, places, counts, ids);
      return;
    }
    if (this.#splitAscii !== undefined && isAscii(part)) {
      const letters = asciiByteLetters(part);
      const starts = this.#splitAscii(part);
      starts.forEach((from, i) => {
        const to = starts[i + 1] ?? part.length;
        this.#encodePiece(letters.slice(from, to), part.slice(from, to), start + from, places, counts, ids);
      });
      return;
    }
    const units = places.length > 0 ? utf16Places(part) : undefined;
    for (const [piece, [from, to]] of preTokenizer.preTokenizeString(part)) {
      if (units === undefined) {
        for (const id of this.#bpe.encode(piece)) ids.push(id);
      } else {
        const [first, end] = [units(from), units(to)];
        this.#encodePiece(piece, part.slice(first, end), start + first, places, counts, ids);
      }
    }
  }

  /** Encodes the piece for `source` at `start`; positions inside it are found token by token. */
  #encodePiece(
    piece: string,
    source: string,
    start: number,
    places: readonly number[],
    counts: number[],
    ids: number[],
  ): void {
    const before = ids.length;
    const end = start + source.length;
    const inside = places.some((place) => place > start && place < end);
    if (!inside) {
      for (const id of this.#bpe.encode(piece)) ids.push(id);
      this.#count(places, counts, end, ids.length);
      return;
    }
    const tokens = this.#bpe.encodeWithLengths(piece);
    for (const id of tokens.ids) ids.push(id);
    this.#count(places, counts, end, ids.length);
    places.forEach((place, i) => {
      if (place <= start || place >= end) return;
      // Counted from the piece's end, because a pre-tokenizer may put a space or "▁" in front.
      const rest = source.slice(place - start);
      const position = piece.length - (this.#bytePieces ? Buffer.byteLength(rest) : rest.length);
      let covered = 0;
      let tokensDone = 0;
      for (const length of tokens.lengths) {
        covered += length;
        if (covered > position) break;
        tokensDone++;
      }
      counts[i] = before + tokensDone;
    });
  }

  #count(places: readonly number[], counts: number[], end: number, tokens: number): void {
    for (let i = 0; i < places.length; i++) if ((places[i] as number) >= end) counts[i] = tokens;
  }
}

function pushAll(ids: number[], more: ArrayLike<number>): void {
  for (let i = 0; i < more.length; i++) ids.push(more[i] as number);
}

/** Native offsets count code points. */
function utf16Places(text: string): (codePoint: number) => number {
  if (!/[\ud800-\udbff]/.test(text)) return (codePoint) => codePoint;
  const places: number[] = [];
  let place = 0;
  for (const char of text) {
    places.push(place);
    place += char.length;
  }
  places.push(place);
  return (codePoint) => places[codePoint] ?? text.length;
}

/**
 * Metaspace's "first" puts "▁" only at the start of the text; sections after the first need a pre-tokenizer without it.
 */
function preTokenizerAfterStart(step: TokenizerJson['pre_tokenizer']): PreTokenizer | null {
  const text = JSON.stringify(step ?? null);
  if (!text.includes('"prepend_scheme":"first"')) return null;
  const pre_tokenizer = JSON.parse(text.replaceAll('"prepend_scheme":"first"', '"prepend_scheme":"never"'));
  const model = { type: 'BPE', vocab: {}, merges: [] };
  return NativeTokenizer.fromString(
    JSON.stringify({ version: '1.0', added_tokens: [], pre_tokenizer, model }),
  ).getPreTokenizer();
}

function mentionsByteLevel(step: TokenizerJson['pre_tokenizer']): boolean {
  if (step == null) return false;
  return step.type === 'ByteLevel' || (step.pretokenizers ?? []).some(mentionsByteLevel);
}
