/**
 * Which request gets which slot: the queue of waiting requests, the free slots, and the slots of finished sequences that may
 * serve as prefixes. Every slot has room for a whole sequence, so a response that has started is never preempted.
 */
import { ropeDependsOnLength } from '../decoder/rope.ts';
import type { Model } from '../model.ts';
import { blocksFor, type CacheSize, type KvCache } from './cache.ts';
import type { Engine, PromptRows } from './engine.ts';
import { longestMatch, type Match, type Prefix, Prefixes, prefixLength } from './prefixes.ts';
import { FairQueue } from './queue.ts';
import type { GenerationRequest } from './request.ts';
import type { Row } from './row.ts';
import type { Submitted } from './submission.ts';

/** Most prompt tokens of one prefill: bounds its memory. */
const PREFILL_TOKENS = 16384;

/** A slot is taken over if this many of its tokens are lost at most: they cost less to compute again than all others to copy. */
const FEW_TOKENS = 64;

/** The requests of one adapter that were admitted in one go. */
export interface Admitted {
  adapter: string | null;
  groups: PromptRows[];
  submissions: Submitted[];
}

export class Admission {
  readonly #engine: Engine;
  readonly #reuse: boolean;
  readonly #queue = new FairQueue<Submitted>();
  readonly #prefixes = new Prefixes();
  #free: number[] = [];
  /** Prompt tokens so far: computed, and reused from the cache. */
  readonly promptTokens = { computed: 0, reused: 0 };

  constructor(model: Model, engine: Engine, reusePrefixes: boolean) {
    const { positions } = model.decoder.spec;
    this.#engine = engine;
    // With dynamic rope scaling the keys depend on the sequence's length, so prefixes of other sequences do not fit.
    this.#reuse = reusePrefixes && !(positions.kind === 'rope' && ropeDependsOnLength(positions));
  }

  /** Responses that wait for a slot. */
  get waiting(): number {
    let count = 0;
    for (const submission of this.#queue) count += submission.waiting.length;
    return count;
  }
  get isEmpty(): boolean {
    return this.#queue.first === undefined;
  }
  get submissions(): Submitted[] {
    return [...this.#queue];
  }
  get requests(): GenerationRequest[] {
    return this.submissions.map((submission) => submission.request);
  }

  enter(client: unknown, submission: Submitted): void {
    this.#queue.push(client, submission);
  }

  /** Removes requests that were cancelled or have failed. */
  dropCancelled(): void {
    this.#queue.keepOnly((submission) => {
      if (!submission.cancelled && !submission.settled) return true;
      for (const row of submission.waiting) row.finish ??= 'cancelled';
      submission.waiting.length = 0;
      if (submission.rows.every((row) => row.slot < 0)) submission.settle();
      return false;
    });
  }

  /** Makes the cache at least this large. Call it only while no row is in a slot. */
  makeRoom(size: CacheSize): void {
    if (!this.#engine.makeRoom(size)) return;
    const cache = this.#engine.cache as KvCache;
    const { slots } = cache;
    const width = blocksFor(cache.length);
    for (let slot = 0; slot < slots; slot++)
      cache.setTable(
        slot,
        Array.from({ length: width }, (_, i) => slot * width + i),
      );
    this.#prefixes.clear();
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  /** Frees the slot of a finished row. Its sequence is kept as a prefix where `weights` is known. */
  release(row: Row, weights: string | null): void {
    if (this.#reuse && weights !== null) this.#prefixes.keep(prefixOf(row, weights));
    else this.#free.push(row.slot);
  }

  /**
   * Fills free slots. The samples of a prompt enter together where they fit, so that the prompt is read once; a group larger
   * than all slots enters in portions. A request longer than the cache waits until no row is in a slot; then the cache grows.
   */
  admit(inFlight: readonly Submitted[], weightsOf: (adapter: string | null) => string): Admitted[] {
    const cache = this.#engine.cache as KvCache;
    const admitted = new Map<string | null, Admitted>();
    let tokens = 0;
    for (let next = this.#queue.first; next !== undefined; next = this.#queue.first) {
      const { request, waiting, adapter } = next;
      const available = this.#free.length + this.#prefixes.size;
      if (available === 0 || request.prompt.length + request.maxNewTokens > cache.length) break;
      if (waiting.length > available && waiting.length <= cache.slots) break;
      const match = this.#reuse ? this.#match(next, weightsOf(adapter), inFlight) : null;
      const left = request.prompt.length - (match?.length ?? 0);
      if (tokens > 0 && tokens + left > PREFILL_TOKENS) break;
      weightsOf(adapter);
      const rows = waiting.splice(0, available);
      if (waiting.length === 0) this.#queue.shift();
      const from = this.#place(rows, match, cache);
      tokens += request.prompt.length - from;
      this.promptTokens.computed += request.prompt.length - from;
      this.promptTokens.reused += from;
      const own = admitted.get(adapter) ?? { adapter, groups: [], submissions: [] };
      own.groups.push({ rows, from });
      own.submissions.push(next);
      admitted.set(adapter, own);
    }
    return [...admitted.values()];
  }

  /**
   * The longest beginning of the prompt that is in a slot, of a finished sequence or of one being written. Sequences of other
   * adapters do not match: their keys and values differ.
   */
  #match({ request, adapter }: Submitted, weights: string, inFlight: readonly Submitted[]): Match | null {
    const written: Prefix[] = inFlight
      .filter((submission) => submission.adapter === adapter)
      .flatMap(({ rows }) => rows.filter((row) => row.slot >= 0))
      .map((row) => prefixOf(row, weights));
    return longestMatch(request.prompt, weights, [...this.#prefixes.values(), ...written]);
  }

  /**
   * Gives the rows their slots and puts the matched prefix into the first one's; returns how many of its tokens are reused. A
   * conversation that continues keeps its slot, also where its last tokens come back otherwise (a template drops thinking, or a
   * text splits into other tokens). Any other match is copied, so that the prefix stays available.
   */
  #place(rows: readonly Row[], match: Match | null, cache: KvCache): number {
    const [lead, ...others] = rows as [Row, ...Row[]];
    let from = 0;
    if (match !== null) {
      const { prefix, length } = match;
      this.#prefixes.touch(prefix);
      const goesOn = prefixLength(prefix) - length <= FEW_TOKENS && this.#prefixes.take(prefix.slot);
      const slot = goesOn ? prefix.slot : (this.#free.pop() ?? this.#prefixes.evict(prefix));
      // no other slot is left: use the prefix's own
      if (slot === undefined) this.#prefixes.take(prefix.slot);
      else if (!goesOn) {
        const count = blocksFor(length);
        cache.copyBlocks(cache.table(prefix.slot).slice(0, count), cache.table(slot).slice(0, count));
      }
      lead.slot = slot ?? prefix.slot;
      from = length;
    } else {
      lead.slot = this.#anySlot();
    }
    for (const row of others) row.slot = this.#anySlot();
    return from;
  }

  #anySlot(): number {
    return (this.#free.pop() ?? this.#prefixes.evict()) as number;
  }
}

const prefixOf = ({ slot, request, ids }: Row, weights: string): Prefix => ({
  slot,
  prompt: request.prompt,
  written: ids,
  weights,
});
