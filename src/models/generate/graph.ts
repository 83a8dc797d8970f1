/**
 * Decoding on CUDA without the host: one step of all slots, by the plan or by the general path (stepper.ts), is captured as a
 * CUDA graph and replayed. Tokens, positions and which rows are done stay on the device; the host reads them every few tokens.
 * So a step costs only what its kernels cost. `start` queues a few steps and returns; `collect` waits for their tokens.
 */
import {
  type Device,
  Graph,
  keep,
  noGrad,
  Stream,
  scope,
  synchronize,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { MergedWeights } from '../decoder/merged.ts';
import type { KvCache } from './cache/cache.ts';
import type { Row } from './row.ts';
import type { RuleTensors } from './sampling.ts';
import { Stepper } from './stepper.ts';

/** Tokens between two reads by the host; fewer where a caller follows token by token. */
const TOKENS_PER_LOOK = 16;
const WATCHED_TOKENS_PER_LOOK = 4;
/** Most steps that the device takes before the host gives out further blocks: those of a look, and those started ahead. */
export const STEPS_PER_LOOK = TOKENS_PER_LOOK + WATCHED_TOKENS_PER_LOOK;
/** Steps that are started before the host looks at the last ones' tokens; what rows that turn out to be done compute is wasted. */
const STEPS_AHEAD = 1;

/** Steps that were started and not collected. */
interface Started {
  rows: readonly Row[];
  steps: number;
  watched: boolean;
}

export class GraphDecoder {
  /** The value of `Decoder.arrangement` that this graph is valid for. */
  readonly arrangement: number;
  readonly #decoder: Decoder;
  readonly #stepper: Stepper;
  readonly #cache: KvCache;
  readonly #state: GraphRows;
  /** The rows that the state on the device is of, as they were after the last collected step. */
  #resident: readonly Row[] = [];
  #started: Started | null = null;
  /** The tokens of the last steps, [TOKENS_PER_LOOK, slots]; `#tick` is the next row to write. */
  readonly #outIds: Tensor;
  readonly #outLogp: Tensor;
  readonly #outKept: Tensor;
  readonly #tick: Tensor;
  readonly #stream: Stream;
  /** The tables that the graph was captured with: it reads them even after the decoder has made larger ones. */
  readonly #tables: Tensor[];
  #graph: Graph | null = null;

  constructor(decoder: Decoder, cache: KvCache, merged: () => MergedWeights | null = () => null) {
    const { device } = decoder;
    const { slots } = cache;
    this.arrangement = decoder.arrangement;
    this.#decoder = decoder;
    this.#stepper = new Stepper(decoder, cache, merged);
    this.#stream = new Stream(device);
    this.#cache = cache;
    this.#state = new GraphRows(slots, device);
    this.#outIds = keep(zeros([TOKENS_PER_LOOK, slots], { dtype: 'int64', device }));
    this.#outLogp = keep(zeros([TOKENS_PER_LOOK, slots], { device }));
    this.#outKept = keep(zeros([TOKENS_PER_LOOK, slots], { device }));
    this.#tick = keep(zeros([1], { dtype: 'int64', device }));
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  get isBusy(): boolean {
    return this.#started !== null;
  }

  /**
   * Starts several steps of every row; a row that is done writes no further. `watched`: a caller follows token by token. Where
   * steps were started ahead, adds to them.
   */
  start(rows: readonly Row[], watched: boolean): void {
    const most = Math.max(...rows.map(tokensLeft));
    const wanted = Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : TOKENS_PER_LOOK);
    if (this.#started !== null) {
      this.#more(wanted - this.#started.steps);
      return;
    }
    // The state of rows that only went on is on the device already.
    if (!sameRows(rows, this.#resident)) this.#state.upload(rows);
    if (this.#graph === null) {
      this.#graph = Graph.capture(() => this.#step(), { stream: this.#stream });
      this.#state.upload(rows); // capturing ran the step and changed the state
    }
    this.#resident = [...rows];
    this.#begin(this.#resident, wanted, watched);
  }

  #begin(rows: readonly Row[], steps: number, watched: boolean): void {
    this.#tick.zero_();
    this.#started = { rows, steps: 0, watched };
    this.#more(steps);
  }

  #more(steps: number): void {
    for (let i = 0; i < steps; i++) this.#graph?.replay();
    if (this.#started !== null) this.#started.steps += Math.max(0, steps);
  }

  /**
   * Waits for the started steps and gives the rows their tokens, none after a row is done. `goOn` starts the next steps of the
   * same rows before that, so that the device works while the host looks at the tokens. What they write for rows that turn
   * out to be done is dropped; it lies behind their last token in the cache, where nothing reads it.
   */
  collect(goOn: boolean): void {
    const started = this.#started;
    if (started === null) return;
    const { rows, steps, watched } = started;
    this.#started = null;
    const ids = this.#outIds.data() as BigInt64Array;
    const logps = this.#outLogp.data() as Float32Array;
    const kept = this.#outKept.data() as Float32Array;
    const most = Math.max(0, ...rows.filter((row) => row.finish === null).map(tokensLeft)) - steps;
    if (goOn && most > 0) this.#begin(rows, Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : STEPS_AHEAD), watched);
    const { slots } = this.#cache;
    for (const row of rows) {
      for (let step = 0; step < steps && row.finish === null; step++) {
        const at = step * slots + row.slot;
        row.push(Number(ids[at]), logps[at] as number, kept[at] as number);
      }
    }
  }

  /** Drops what was started and not collected: nobody waits for it. */
  forget(): void {
    this.#started = null;
    this.#resident = [];
  }

  /** The recorded step: decode, draw, store, advance. Nothing here reads a value back to the host. */
  #step(): void {
    scope(() =>
      noGrad(() => {
        const { ids: last, positions, limits, slots, rule } = this.#state;
        const { ids, logp, kept } = this.#stepper.next({ ids: last, positions, slots }, rule);
        this.#outIds.indexCopy_(0, this.#tick, ids.unsqueeze(0));
        this.#outLogp.indexCopy_(0, this.#tick, logp.unsqueeze(0));
        this.#outKept.indexCopy_(0, this.#tick, kept.unsqueeze(0));
        this.#tick.copy_(this.#tick.add(1).remainder(TOKENS_PER_LOOK));
        const going = positions.lt(limits);
        positions.copy_(where(going, positions.add(1), positions));
        last.copy_(ids);
      }),
    );
  }

  dispose(): void {
    if (this.#graph !== null) synchronize(this.#decoder.device); // its last steps may still run
    this.#graph?.dispose();
    this.#stepper.dispose();
    this.#state.dispose();
    for (const own of [this.#outIds, this.#outLogp, this.#outKept, this.#tick, ...this.#tables]) own.dispose();
  }
}

const tokensLeft = (row: Row): number => row.request.maxNewTokens - row.ids.length;
const sameRows = (a: readonly Row[], b: readonly Row[]): boolean =>
  a.length === b.length && a.every((row, i) => row === b[i]);

/** What is uploaded of each slot: whole numbers and fractions in a tensor each, so that an upload is two copies. */
const WHOLE = ['ids', 'positions', 'limits', 'slots', 'topK', 'seeds'] as const;
const FRACTIONS = ['temperature', 'topP', 'minP'] as const;

/** The state of all slots as the graph reads it. Idle rows stay at position 0 of the spare slot. */
class GraphRows {
  readonly #slots: number;
  readonly #whole: Tensor;
  readonly #fractions: Tensor;
  readonly #views: Record<(typeof WHOLE)[number] | (typeof FRACTIONS)[number], Tensor>;

  constructor(slots: number, device: Device) {
    this.#slots = slots;
    this.#whole = keep(zeros([WHOLE.length, slots], { dtype: 'int64', device }));
    this.#fractions = keep(zeros([FRACTIONS.length, slots], { device }));
    const views = [
      ...WHOLE.map((name, i) => [name, keep(this.#whole.select(0, i))]),
      ...FRACTIONS.map((name, i) => [name, keep(this.#fractions.select(0, i))]),
    ];
    this.#views = Object.fromEntries(views);
  }

  get ids(): Tensor {
    return this.#views.ids;
  }
  get positions(): Tensor {
    return this.#views.positions;
  }
  /** The last position of each response; 0 for an idle row. */
  get limits(): Tensor {
    return this.#views.limits;
  }
  get slots(): Tensor {
    return this.#views.slots;
  }
  get rule(): RuleTensors {
    const { temperature, topK, topP, minP, seeds } = this.#views;
    return { temperature, topK, topP, minP, seeds };
  }

  upload(active: readonly Row[]): void {
    const slots = this.#slots;
    const whole = new BigInt64Array(WHOLE.length * slots);
    const fractions = new Float32Array(FRACTIONS.length * slots);
    const part = <T extends BigInt64Array | Float32Array>(array: T, names: readonly string[], name: string): T =>
      array.subarray(names.indexOf(name) * slots, (names.indexOf(name) + 1) * slots) as T;
    const wholeOf = (name: (typeof WHOLE)[number]) => part(whole, WHOLE, name);
    const fractionsOf = (name: (typeof FRACTIONS)[number]) => part(fractions, FRACTIONS, name);
    const [ids, positions, limits] = [wholeOf('ids'), wholeOf('positions'), wholeOf('limits')];
    const [places, topK, seeds] = [wholeOf('slots'), wholeOf('topK'), wholeOf('seeds')];
    const [temperature, topP, minP] = [fractionsOf('temperature'), fractionsOf('topP'), fractionsOf('minP')];
    places.fill(BigInt(slots)); // the spare slot
    temperature.fill(1);
    topP.fill(1);
    for (const row of active) {
      const { slot, rule } = row;
      places[slot] = BigInt(slot);
      ids[slot] = BigInt(row.last);
      positions[slot] = BigInt(row.position);
      limits[slot] = BigInt(row.promptLength + row.request.maxNewTokens - 1);
      topK[slot] = BigInt(rule.topK);
      seeds[slot] = BigInt(row.seed);
      temperature[slot] = rule.temperature;
      topP[slot] = rule.topP;
      minP[slot] = rule.minP;
    }
    scope(() => {
      this.#whole.copy_(tensor(whole, { shape: [WHOLE.length, slots] }));
      this.#fractions.copy_(tensor(fractions, { shape: [FRACTIONS.length, slots] }));
    });
  }

  dispose(): void {
    for (const each of [...Object.values(this.#views), this.#whole, this.#fractions]) each.dispose();
  }
}
