/**
 * Runs the model for the sampler: it owns the cache, reads prompts into it and takes decoding steps, each row with its
 * request's adapter. The sampler decides which rows there are, and when they run.
 */
import { isRecorded, noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { ropeDependsOnLength } from '../decoder/rope.ts';
import type { Model } from '../model.ts';
import { DecodingWeights } from '../weights/decoding-weights.ts';
import { FastWeights } from '../weights/fast-weights.ts';
import {
  BLOCK,
  blocksFor,
  type CacheDtype,
  type CacheKind,
  type CacheSize,
  cacheBytes,
  KvCache,
} from './cache/cache.ts';
import { continuePrompts, copyPrompts, fillSlots, PREFILL_TOKENS, prefill, tokensLeft } from './decoding.ts';
import { drawnOnHost, FirstTokens, shape } from './drawn-tokens.ts';
import { GraphDecoder, STEPS_PER_LOOK } from './graph.ts';
import { PromptGraphs, type PromptOfRows } from './prompt-graph.ts';
import { PromptReader } from './prompt-reader.ts';
import type { Row } from './row.ts';
import { type Drawn, likeliest, onHost, type RuleTensors, ruleTensors, sampleTogether } from './sampling.ts';
import { type HeldRows, RowTensors, Stepper } from './stepper.ts';

/**
 * Tokens of preempted rows that go through one step; this many rows always take the plan's path, if there is one
 * (isSkinny).
 */
const REPLAYED_TOKENS = 32;

/**
 * Rows that share a prompt. The first `from` tokens of the prompt are already in the first row's slot. Either all of
 * them are new, or all were preempted and continue.
 */
export interface PromptRows {
  rows: readonly Row[];
  from: number;
}

export class Engine {
  /** The weights it decodes with: the rows' adapter, and copies of matrices. */
  readonly weights: DecodingWeights;
  readonly #model: Model;
  #cache: KvCache | null = null;
  #stepper: Stepper | null = null;
  #graph: GraphDecoder | null = null;
  /** `weights.changes` when the graph was made. */
  #changes = 0;
  #prompts: PromptGraphs | null = null;
  #reader: PromptReader | null = null;
  #service: boolean;
  readonly #cacheDtype: CacheDtype;
  readonly #fast: FastWeights | null;
  #rows: RowTensors | null = null;
  #firstTokens: FirstTokens | null = null;

  /**
   * `service`: requests come one by one, and each should be answered soon. `fast`: decoding steps may round
   * activations.
   */
  constructor(model: Model, options: { service: boolean; fast: boolean; cacheDtype: CacheDtype }) {
    const { positions } = model.decoder.spec;
    this.#model = model;
    this.weights = new DecodingWeights(model);
    this.#cacheDtype = options.cacheDtype;
    this.#fast = options.fast ? FastWeights.of(model.decoder) : null;
    // If rope depends on a sequence's length, a prompt is read whole.
    this.#service = options.service && !(positions.kind === 'rope' && ropeDependsOnLength(positions));
  }

  get cache(): KvCache | null {
    return this.#cache;
  }
  get cacheBytes(): number {
    return this.#cache === null ? 0 : cacheBytes(this.#model.decoder.spec, this.#cache, this.#cacheKind);
  }
  get #cacheKind(): CacheKind {
    const { dtype, device } = this.#model.decoder;
    return { dtype, device, cacheDtype: this.#cacheDtype };
  }

  /** Makes the cache at least this large. Returns true if it was replaced: the contents of the old one are lost. */
  makeRoom(size: CacheSize): boolean {
    if (
      this.#cache !== null &&
      this.#cache.slots >= size.slots &&
      this.#cache.length >= size.length &&
      this.#cache.blocks >= size.blocks
    )
      return false;
    this.dispose();
    const { decoder } = this.#model;
    this.#cache = new KvCache(decoder.spec, size, this.#cacheKind);
    this.#stepper = new Stepper(decoder, this.#cache, () => ({
      fast: this.#fast,
      exact: (all) => this.weights.exact(this.cacheBytes, all),
    }));
    this.#reader = new PromptReader(decoder, this.#cache);
    this.#rows = new RowTensors(decoder.device);
    return true;
  }

  /**
   * Announces a batch of known size, as opposed to a service. On a CPU, frees a cache of another size. Elsewhere a
   * larger one stays, since its captured graphs are expensive.
   */
  beginBatch(slots: number, length: number): void {
    this.#service = false;
    const isSame = this.#cache?.slots === slots && this.#cache.length === blocksFor(length) * BLOCK;
    if (!isSame && this.#model.decoder.device === 'cpu') this.dispose();
  }

  /** Tokens that a step may write before `step` is called again. */
  get stepsAhead(): number {
    return isRecorded(this.#model.decoder.device) ? STEPS_PER_LOOK : 1;
  }

  /** A row loses its slot before it is done: tensors held for the current rows are no longer valid. */
  forgetRows(): void {
    this.#graph?.forget();
    this.#rows?.dispose();
  }

  /**
   * Frees the decode plan and the tensors of the current rows; the cache, a captured graph and what belongs to it stay.
   */
  rest(): void {
    this.forgetRows();
    this.#firstTokens?.forget();
    this.#stepper?.dispose();
    if (this.#cache !== null && !isRecorded(this.#cache.tables.device)) this.#reader?.dispose();
  }

  /**
   * Reads the prompts into their rows' slots and draws each row's first token. Preempted rows instead get back their
   * cache contents. `more`: further prompts will be read, so rows may get their tokens with the next `readPrompts`, or
   * by `takeFirstTokens`. `alone`: the active adapter, if any, has the sampler to itself, so its matrices are merged.
   */
  readPrompts(groups: readonly PromptRows[], { more, alone }: { more: boolean; alone: boolean }): void {
    const later = more && isRecorded(this.#model.decoder.device);
    if (later) this.#firstTokens ??= new FirstTokens(this.#model.decoder.device);
    const read = () => this.#readPrompts(groups, later ? this.#firstTokens : null, alone);
    if (this.#firstTokens === null) read();
    else this.#firstTokens.takeAfter(read);
  }

  /** Gives the rows of the last prompts their first tokens. */
  takeFirstTokens(): void {
    this.#firstTokens?.takeAfter(() => {});
  }

  #readPrompts(groups: readonly PromptRows[], later: FirstTokens | null, alone: boolean): void {
    const { decoder } = this.#model;
    const cache = this.#cache as KvCache;
    cache.upload();
    const part = (some: readonly PromptOfRows[], hiddenOf: () => Tensor) => {
      if (some.length === 0) return;
      const rows = some.flatMap((item) => item.rows);
      const drawn = scope(() =>
        noGrad(() => {
          const which = some.flatMap((item, i) => item.rows.map(() => i));
          const each = decoder.logits(hiddenOf());
          const logits = which.length === some.length ? each : each.indexSelect(0, this.#whole(which));
          const rule = ruleTensors(
            rows.map((row) => row.rule),
            rows.map((row) => row.seed),
            decoder.device,
          );
          // The counter is the position of the new token, so that a seed gives the same random number in any batch.
          const counters = this.#whole(rows.map((row) => row.position + 1));
          if (later === null || rows.some((row) => row.needsLogits)) return this.#draw(logits, rows, rule, counters);
          later.add(rows, sampleTogether(this.#wide(logits), rule, counters));
          return null;
        }),
      );
      if (drawn !== null) push(rows, drawn);
    };
    const all = groups.map(({ rows, from }) => {
      const lead = rows[0] as Row;
      return { prompt: lead.request.prompt, slot: lead.slot, from, rows };
    });
    this.#restore(all.filter(({ rows }) => isBegun(rows[0] as Row)));
    const items = all.filter(({ rows }) => !isBegun(rows[0] as Row));
    if (items.length === 0) return;
    const quick = this.#promptGraphFor(items);
    if (quick !== null) {
      push(
        items.flatMap((item) => item.rows),
        quick.read(items),
      );
      copyPrompts(cache, items);
      return;
    }
    const fresh = items.filter(({ from }) => from === 0);
    if (!this.#readAtOnce(fresh, later, alone)) part(fresh, () => prefill(decoder, cache, fresh));
    const begun = items.filter(({ from }) => from > 0);
    part(begun, () => continuePrompts(decoder, cache, begun));
    copyPrompts(cache, items);
  }

  /** Reads whole prompts in one native call. Returns false without doing anything if that is not possible. */
  #readAtOnce(items: readonly PromptOfRows[], later: FirstTokens | null, alone: boolean): boolean {
    if (items.length === 0) return true;
    const rows = items.flatMap((item) => item.rows);
    const merged = alone ? this.weights.merged() : null;
    const found = scope(() => (this.#reader as PromptReader).read(items, merged));
    if (found === null) return false;
    if (later !== null) {
      later.add(rows, found);
      return true;
    }
    const drawn = drawnOnHost(found);
    found.dispose();
    push(rows, drawn);
    return true;
  }

  /**
   * Restores preempted rows: reads their prompts, then their tokens so far. On the CPU the tokens go through the
   * decoding step, several at a time: a row's sums do not depend on the other rows, so all numbers are the same to the
   * bit. On other devices they are read like a prompt's, which gives the same numbers to rounding.
   */
  #restore(items: readonly PromptOfRows[]): void {
    if (items.length === 0) return;
    const { decoder } = this.#model;
    const cache = this.#cache as KvCache;
    scope(() =>
      noGrad(() => {
        const fresh = items.filter(({ from }) => from === 0);
        if (fresh.length > 0) scope(() => void prefill(decoder, cache, fresh));
        const begun = items.filter(({ prompt, from }) => from > 0 && from < prompt.length);
        if (begun.length > 0) scope(() => void continuePrompts(decoder, cache, begun));
        copyPrompts(cache, items);
        // the newest token is not in the cache: the next step writes it
        const written = items.flatMap(({ rows }) => rows.filter((row) => row.ids.length > 1));
        const sequences = written.map((row) => ({
          prompt: [...Array.from(row.request.prompt), ...row.ids.slice(0, -1)],
          slot: row.slot,
          from: row.promptLength,
        }));
        if (decoder.device !== 'cpu') {
          fillSlots(decoder, cache, sequences, PREFILL_TOKENS);
          return;
        }
        const { ids, positions, slots } = tokensLeft(sequences, cache);
        for (let at = 0; at < ids.length; at += REPLAYED_TOKENS) {
          const part = (values: readonly number[]) => this.#whole(values.slice(at, at + REPLAYED_TOKENS));
          const rows = { ids: part(ids), positions: part(positions), slots: part(slots) };
          scope(() => void (this.#stepper as Stepper).logits(rows));
        }
      }),
    );
  }

  /** The captured pass that reads these prompts; null if there is none. */
  #promptGraphFor(items: readonly PromptOfRows[]): ReturnType<PromptGraphs['of']> {
    const { decoder, adapters } = this.#model;
    // For a service only: training reads prompts like the trainer, and adapters that alternate would be captured anew
    // each time.
    if (!this.#service || !isRecorded(decoder.device) || adapters !== null) return null;
    if (this.#prompts?.arrangement !== decoder.arrangement) {
      this.#prompts?.dispose();
      this.#prompts = new PromptGraphs(decoder, this.#cache as KvCache);
    }
    return this.#prompts.of(items);
  }

  /** Whether the device is still working on steps whose tokens were not collected. */
  get isBusy(): boolean {
    return this.#graph?.isBusy ?? false;
  }

  /** Waits for the started steps and gives the rows their tokens. `goOn`: starts the same rows' next steps first. */
  collect(goOn: boolean): void {
    // a graph captured before adapters were activated, removed or merged is not continued
    this.#graph?.collect(goOn && this.#graph.arrangement === this.#model.decoder.arrangement);
  }

  /**
   * Writes one token for each row, and further ones for up to `milliseconds` while no row is done, if that saves time.
   * On CUDA it starts several steps, whose tokens come with `collect`. All rows must belong to the active adapter.
   */
  step(rows: readonly Row[], options: { watched: boolean; graphs: boolean; milliseconds: number }): void {
    this.#cache?.upload();
    const graph = options.graphs ? this.#graphOf() : null;
    if (graph === null) {
      this.#graph?.forget(); // its copy of the rows' tokens on the device becomes outdated
      this.#stepTogether(rows, options.milliseconds);
      return;
    }
    const free = rows.filter((row) => !row.needsLogits);
    if (free.length > 0) graph.start(free, options.watched);
    const seen = rows.filter((row) => row.needsLogits);
    if (seen.length > 0) this.#stepTogether(seen, 0);
  }

  /** One step of the rows, and further ones while time allows. */
  #stepTogether(active: readonly Row[], milliseconds: number): void {
    const stepper = this.#stepper as Stepper;
    const held = (this.#rows as RowTensors).of(active);
    const ids = active.map((row) => row.last);
    const positions = active.map((row) => row.position);
    const seen = active.some((row) => row.needsLogits);
    const limits = {
      steps: Math.min(...active.map(stepsInBlock)),
      stops: active.flatMap(({ request }) => request.stopIds ?? []),
      milliseconds,
    };
    const drawn =
      (seen ? null : stepper.nextHeld(held, ids, positions, limits)) ?? this.#stepByTensors(active, held, seen);
    push(active, drawn);
  }

  #stepByTensors(active: readonly Row[], { rule, slots }: HeldRows, seen: boolean): Drawn {
    const stepper = this.#stepper as Stepper;
    return scope(() =>
      noGrad(() => {
        const rows = {
          ids: this.#whole(active.map((row) => row.last)),
          positions: this.#whole(active.map((row) => row.position)),
          slots,
        };
        if (!seen) return onHost(stepper.next(rows, rule));
        return this.#draw(stepper.logits(rows), active, rule, rows.positions.add(1));
      }),
    );
  }

  /**
   * The captured graph on CUDA for the current weights; null on other devices. Adapters that alternate have none, and
   * are not merged.
   */
  #graphOf(): GraphDecoder | null {
    const { decoder } = this.#model;
    if (!isRecorded(decoder.device) || this.#cache === null) return null;
    // A graph captured before adapters were activated, removed or merged is no longer valid. It is dropped before
    // copies are made here, since it holds those that it reads.
    if (this.#graph?.arrangement !== decoder.arrangement) this.#dropGraph();
    const merged = this.weights.merged();
    const packed = this.weights.packed(this.#service ? 1 : this.#cache.slots); // a service often has only one row
    if (this.#changes !== this.weights.changes) this.#dropGraph();
    this.#changes = this.weights.changes;
    this.#graph ??= new GraphDecoder(decoder, this.#cache, () => ({ merged, packed }));
    return this.#graph;
  }

  #dropGraph(): void {
    this.#graph?.dispose();
    this.#graph = null;
  }

  #wide(logits: Tensor): Tensor {
    return this.#model.decoder.dtype === 'float32' ? logits : logits.to('float32');
  }

  /** Draws the next token of each row; the logits may be overwritten. */
  #draw(logits: Tensor, rows: readonly Row[], rule: RuleTensors, counters: Tensor): Drawn {
    const wide = this.#wide(logits);
    for (const [i, row] of rows.entries()) if (row.needsLogits) shape(wide.select(0, i), row);
    const drawn = drawnOnHost(sampleTogether(wide, rule, counters));
    const top = rows.map(({ request: { topLogprobs = 0 }, rule: { temperature } }, i) =>
      topLogprobs > 0 ? likeliest(wide.select(0, i), temperature, topLogprobs) : undefined,
    );
    return { ...drawn, top };
  }

  #whole(values: readonly number[]): Tensor {
    return tensor(
      BigInt64Array.from(values, (value) => BigInt(value)),
      { device: this.#model.decoder.device },
    );
  }

  dispose(): void {
    this.rest();
    this.#dropGraph();
    this.#prompts?.dispose();
    this.#reader?.dispose();
    this.#firstTokens?.dispose();
    this.#cache?.dispose();
    this.weights.dispose();
    this.#fast?.dispose();
    this.#prompts = null;
    this.#reader = null;
    this.#firstTokens = null;
    this.#stepper = null;
    this.#rows = null;
    this.#cache = null;
  }
}

const isBegun = (row: Row): boolean => row.ids.length > 0;

/**
 * Steps that a row can take by itself: limited by the places left in its last block, and by its remaining response
 * tokens.
 */
const stepsInBlock = (row: Row): number =>
  (row.request.stopStrings?.length ?? 0) > 0
    ? 1
    : Math.min(BLOCK - (row.position % BLOCK), row.mostPositions - row.position - 1);

/** Gives the rows their tokens, of one step or of several consecutive ones. */
function push(rows: readonly Row[], { ids, logprobs, kept, top }: Drawn): void {
  for (let at = 0; at < ids.length; at += rows.length)
    for (const [i, row] of rows.entries())
      row.push(ids[at + i] as number, logprobs[at + i] as number, kept[at + i] as number, top?.[i]);
}
