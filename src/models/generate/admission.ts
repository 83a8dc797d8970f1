/**
 * Decides which request enters when: the queue of waiting requests, and the preempted rows. A row enters if there are a
 * slot and blocks for its prompt and part of its response. Rows get further blocks as they grow. If blocks run out, the
 * youngest rows are preempted: they give up their blocks and enter again, before new requests, when there is room.
 */
import { ropeDependsOnLength } from '../decoder/rope.ts';
import type { Model } from '../model.ts';
import { BLOCK, blocksFor, type CacheSize, type KvCache } from './cache/cache.ts';
import { longestMatch, type Match, prefixLength } from './cache/prefixes.ts';
import { Room } from './cache/room.ts';
import { PREFILL_TOKENS } from './decoding.ts';
import type { Engine, PromptRows } from './engine.ts';
import { FairQueue } from './queue.ts';
import type { GenerationRequest } from './request.ts';
import type { Row } from './row.ts';
import type { Submitted } from './submission.ts';

/**
 * A prefix is taken over instead of shared if at most this many of its tokens are lost: it is a conversation that
 * continues.
 */
const FEW_TOKENS = 64;

/** The requests of one adapter that were admitted together. */
export interface Admitted {
  adapter: string | null;
  groups: PromptRows[];
  submissions: Submitted[];
}

/** A row that gave up its blocks. */
interface Preempted {
  row: Row;
  submission: Submitted;
}

export class Admission {
  readonly #engine: Engine;
  readonly #reuse: boolean;
  readonly #queue = new FairQueue<Submitted>();
  #preempted: Preempted[] = [];
  #room: Room | null = null;
  #admitted = 0;
  /** Prompt tokens so far: computed, and reused from the cache. */
  readonly promptTokens = { computed: 0, reused: 0 };
  /** Number of preemptions so far. */
  preemptions = 0;

  constructor(model: Model, engine: Engine, reusePrefixes: boolean) {
    const { positions } = model.decoder.spec;
    this.#engine = engine;
    // With dynamic rope scaling keys depend on the sequence's length, so prefixes of other sequences do not fit.
    this.#reuse = reusePrefixes && !(positions.kind === 'rope' && ropeDependsOnLength(positions));
  }

  /** Responses that wait for a slot. */
  get waiting(): number {
    let count = this.#preempted.length;
    for (const submission of this.#queue) count += submission.waiting.length;
    return count;
  }
  get isEmpty(): boolean {
    return this.#queue.first === undefined && this.#preempted.length === 0;
  }
  get submissions(): Submitted[] {
    return [...this.#queue];
  }
  get requests(): GenerationRequest[] {
    return this.submissions.map((submission) => submission.request);
  }
  /** Blocks of the cache that are held, by rows or as prefixes. */
  get usedBlocks(): number {
    return this.#room?.usedBlocks ?? 0;
  }

  enter(client: unknown, submission: Submitted): void {
    this.#queue.push(client, submission);
  }

  /** Removes requests that were cancelled or have failed. */
  dropCancelled(): void {
    this.#preempted = this.#preempted.filter(({ row }) => row.finish === null);
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
    if (this.#engine.makeRoom(size)) this.#room = new Room(this.#engine.cache as KvCache);
  }

  /** Drops what is kept of finished sequences. */
  forgetPrefixes(): void {
    this.#room?.forget();
  }

  /** Frees the slot of a finished row. Its sequence is kept as a prefix if `weights` is known. */
  release(row: Row, weights: string | null): void {
    this.#room?.end(row, this.#reuse ? weights : null);
  }

  /**
   * Gives every row in a slot the blocks of its next `steps` tokens, the oldest rows first. If blocks run out, the
   * youngest row is preempted. Returns false, with nothing preempted, if that is needed and not allowed.
   */
  reserve(inFlight: readonly Submitted[], steps: number, mayPreempt: boolean): boolean {
    const room = this.#room as Room;
    const rows = inFlight
      .flatMap((submission) => submission.rows.filter(isActive).map((row) => ({ row, submission })))
      .sort((a, b) => a.row.order - b.row.order);
    for (const { row } of rows) {
      const positions = Math.min(row.position + steps, row.mostPositions);
      while (row.slot >= 0 && !room.free(room.lacking(row, positions))) {
        if (!mayPreempt) return false;
        const youngest = rows.pop() as Preempted;
        room.end(youngest.row, null);
        this.#preempted.push(youngest);
        this.preemptions++;
        this.#engine.forgetRows();
      }
      if (row.slot < 0) break;
      room.grow(row, positions);
    }
    return true;
  }

  /**
   * Fills free slots: preempted rows first, oldest first, then requests in their turn. The samples of a prompt enter
   * together if they fit, so that the prompt is read once; a group that never fits enters in portions. A request larger
   * than the cache waits until no row is in a slot; then the cache grows.
   */
  admit(inFlight: readonly Submitted[], weightsOf: (adapter: string | null) => string): Admitted[] {
    const cache = this.#engine.cache as KvCache;
    const admitted = new Map<string | null, Admitted>();
    const busy = inFlight.flatMap((submission) => submission.rows.filter(isActive));
    const read = new Set(busy); // rows that enter now are not in the cache yet
    let tokens = 0;
    this.#preempted = this.#preempted.filter(({ row }) => row.finish === null);
    const enter = (submission: Submitted, rows: readonly Row[], whole: boolean): number => {
      if (this.#room?.freeSlots === 0) return 0; // checked before the search for a prefix, which takes time
      const { adapter } = submission;
      const match = this.#match(submission, rows, weightsOf(adapter), inFlight, read);
      const length = submission.request.prompt.length;
      if (tokens > 0 && tokens + length - (match?.length ?? 0) > PREFILL_TOKENS) return 0;
      const group =
        this.#place(rows, match, busy, whole) ?? (busy.length === 0 ? this.#place(rows, null, busy, whole) : null);
      if (group === null) return 0;
      busy.push(...group.rows);
      tokens += length - group.from;
      const own = admitted.get(adapter) ?? { adapter, groups: [], submissions: [] };
      own.groups.push(group);
      own.submissions.push(submission);
      admitted.set(adapter, own);
      return group.rows.length;
    };
    while (this.#preempted.length > 0) {
      this.#preempted.sort((a, b) => a.row.order - b.row.order);
      const { submission } = this.#preempted[0] as Preempted;
      const rows = this.#preempted.filter((each) => each.submission === submission).map(({ row }) => row);
      const count = enter(submission, rows, false);
      this.#preempted = this.#preempted.filter(({ row }) => row.slot < 0);
      if (count < rows.length) return [...admitted.values()];
    }
    for (let next = this.#queue.first; next !== undefined; next = this.#queue.first) {
      const { request, waiting } = next;
      if (request.prompt.length + request.maxNewTokens > cache.length) break;
      const count = enter(next, waiting, true);
      for (const row of waiting.splice(0, count)) row.order = this.#admitted++;
      if (waiting.length > 0) break;
      this.#queue.shift();
    }
    return [...admitted.values()];
  }

  /**
   * The longest beginning of the prompt that is in the cache. It belongs to a running row of the same request or, if
   * prefixes are reused, to a finished sequence or one being written. Sequences of other adapters do not match: their
   * keys and values differ.
   */
  #match(
    submission: Submitted,
    rows: readonly Row[],
    weights: string,
    inFlight: readonly Submitted[],
    read: ReadonlySet<Row>,
  ): Match | null {
    const room = this.#room as Room;
    const { request, adapter } = submission;
    const sibling = submission.rows.find((row) => read.has(row));
    if (sibling !== undefined && rows.every((row) => row.ids.length > 0))
      return { prefix: room.prefixOf(sibling, weights), length: request.prompt.length };
    if (!this.#reuse) return null;
    const written = inFlight
      .filter((submission) => submission.adapter === adapter)
      .flatMap(({ rows }) => rows.filter((row) => read.has(row)))
      .map((row) => room.prefixOf(row, weights));
    return longestMatch(request.prompt, weights, [...room.prefixes, ...written]);
  }

  /**
   * Gives the rows of a prompt slots and blocks: as many rows as there is room for besides what the `busy` rows will
   * need soon; null for none. `whole`: all of them or none, if all would fit into the empty cache. The rows share the
   * prompt's full blocks.
   *
   * A conversation that continues takes over its prefix, even if its last tokens come back changed (a template drops
   * thinking, or a text splits into other tokens). Any other prefix stays available.
   */
  #place(rows: readonly Row[], match: Match | null, busy: readonly Row[], whole: boolean): PromptRows | null {
    const room = this.#room as Room;
    const cache = this.#engine.cache as KvCache;
    const prompt = rows[0]?.request.prompt.length as number;
    const from = match?.length ?? 0;
    const held = room.hold(match?.prefix.blocks ?? [], from); // held so that they stay while prefixes are given up
    const continued = match !== null && prefixLength(match.prefix) - from <= FEW_TOKENS ? match.prefix : undefined;
    const full = prompt - (prompt % BLOCK);
    const needs = rows.map(
      (row, i) => blocksFor(soon(row)) - (i === 0 ? room.usable(held, from, continued) : blocksFor(full)),
    );
    let needed = busy.reduce((sum, row) => sum + room.lacking(row, soon(row)), 0);
    let count = 0;
    while (count < Math.min(rows.length, room.freeSlots)) {
      needed += needs[count] as number;
      if (!room.free(needed, match?.prefix)) break;
      count++;
    }
    const alone = needs.reduce((sum, each) => sum + each, held.length);
    const mayWait = whole && busy.length > 0 && rows.length <= cache.slots && alone <= cache.blocks;
    if (count === 0 || (count < rows.length && mayWait)) {
      room.release(held);
      return null;
    }
    const [lead, ...others] = rows.slice(0, count) as [Row, ...Row[]];
    if (continued !== undefined) room.drop(continued);
    else if (match !== null) room.touch(match.prefix);
    room.begin(lead, held, from);
    for (const row of others) room.begin(row, room.hold(room.blocksOf(lead), full), full);
    if (lead.ids.length === 0) {
      this.promptTokens.computed += prompt - from;
      this.promptTokens.reused += from;
    }
    return { rows: [lead, ...others], from };
  }
}

const isActive = (row: Row): boolean => row.slot >= 0 && row.finish === null;

/** Positions that a row will soon need: its current ones, and another block. */
const soon = (row: Row): number => Math.min(row.position + 1 + BLOCK, row.mostPositions);
