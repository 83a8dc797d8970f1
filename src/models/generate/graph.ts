/**
 * Decoding on CUDA without the host. A step, by the plan or by the general path (stepper.ts), is captured as a CUDA
 * graph and replayed. There are graphs for several numbers of rows (`#sizeFor`), captured on first use, so that few
 * rows do not pay for many. Tokens, positions and finished flags stay on the device; the host reads them every few
 * tokens. So a step costs only what its kernels cost. If steps are short, a graph of several steps is used after the
 * graph of one: inside a graph, the next step begins while the last one's tokens are drawn. `start` queues a few steps
 * and returns; `collect` waits for their tokens.
 */
import {
  type Device,
  keep,
  noGrad,
  type Recorded,
  Recorder,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache/cache.ts';
import { DrawnTokens } from './drawn-tokens.ts';
import type { PlanCopies } from './plan.ts';
import type { Row } from './row.ts';
import { type RuleTensors, sampleAndAdvance } from './sampling.ts';
import { Stepper } from './stepper.ts';

/** Tokens between two reads by the host; fewer if a caller follows token by token. */
const TOKENS_PER_LOOK = 16;
const WATCHED_TOKENS_PER_LOOK = 5;
/**
 * Most steps that the device takes before the host assigns further blocks: those of a look, and those started ahead.
 */
export const STEPS_PER_LOOK = TOKENS_PER_LOOK + WATCHED_TOKENS_PER_LOOK;
/**
 * Steps started before the host looks at the previous tokens; their work is wasted for rows that turn out to be done.
 */
const STEPS_AHEAD = 1;
/** Steps of a graph of several: a whole watched look; a third of an unwatched one's steps after the step ahead. */
const SEVERAL = WATCHED_TOKENS_PER_LOOK;
/**
 * Recording costs as much as it saves in some thousand steps, so a short-lived number of rows gets no graph of several.
 */
const STEPS_BEFORE_SEVERAL = 128;
/** With more rows a step takes so long that starting it sooner gains nothing. */
const MOST_ROWS_OF_SEVERAL = 64;
/** The share of rows of mixed lengths that attention takes last. */
const SHARE_OF_LAST = 0.15;

/** The graphs for one number of rows. */
interface Graphs {
  one: Recorded;
  /** The graph of SEVERAL steps: recorded once enough steps were taken that it will be reused. */
  several: Recorded | null;
  /** Steps taken so far. */
  taken: number;
  rows: number;
}

/** Steps that were started but not collected. */
interface Started {
  graphs: Graphs;
  rows: readonly Row[];
  /** The turn of the first step. */
  first: number;
  steps: number;
  watched: boolean;
}

export class GraphDecoder {
  /** The value of `Decoder.arrangement` that this graph is valid for. */
  readonly arrangement: number;
  readonly #stepper: Stepper;
  readonly #cache: KvCache;
  readonly #state: GraphRows;
  /** The rows whose state is on the device, as of the last collected step. */
  #resident: readonly Row[] = [];
  #started: Started | null = null;
  /**
   * The tokens of the last steps: those of a look and those started ahead, each at its turn. Turns repeat cyclically.
   */
  readonly #out: DrawnTokens;
  /** Where in `#out` each row's next token goes. */
  readonly #turns: Tensor;
  readonly #recorder: Recorder;
  /** The tables that the graph was captured with: it reads them even after the decoder has made larger ones. */
  readonly #tables: Tensor[];
  /** By number of rows. */
  readonly #graphs = new Map<number, Graphs>();

  constructor(decoder: Decoder, cache: KvCache, copies: () => PlanCopies = () => ({})) {
    const { device } = decoder;
    const { slots } = cache;
    this.arrangement = decoder.arrangement;
    this.#stepper = new Stepper(decoder, cache, copies);
    this.#recorder = new Recorder(device);
    this.#cache = cache;
    this.#state = new GraphRows(slots, device);
    this.#out = new DrawnTokens(STEPS_PER_LOOK, slots, device);
    this.#turns = keep(zeros([slots], { dtype: 'int64', device }));
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  get isBusy(): boolean {
    return this.#started !== null;
  }

  /**
   * Starts several steps of every row; a row that reaches its limit is idle from then on. `watched`: a caller follows
   * token by token. If steps were started ahead, adds to them, without rows that have since ended otherwise: their keys
   * would be read again and again.
   */
  start(given: readonly Row[], watched: boolean): void {
    // at most one step: the steps ahead of a watched look and another look together would exceed the rows' places
    if (this.#started?.watched === false && !watched && this.#isTooLarge(this.#started)) this.collect(false);
    const rows = inOrder(given.filter((row) => row.finish === null));
    if (rows.length === 0) return;
    const most = Math.max(...rows.map(tokensLeft));
    const wanted = Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : TOKENS_PER_LOOK);
    if (this.#started !== null) {
      this.#state.rest(this.#started.rows.flatMap((row, i) => (row.finish === null ? [] : [i])));
      this.#more(wanted - this.#started.steps);
      return;
    }
    // The state of rows that only advanced is on the device already.
    if (!sameRows(rows, this.#resident)) this.#state.upload(rows);
    const graphs = this.#graphsFor(rows);
    this.#resident = [...rows];
    this.#turns.zero_();
    this.#started = { graphs, rows: this.#resident, first: 0, steps: 0, watched };
    this.#more(wanted);
  }

  /** The number of rows of the smallest graph that fits: a power of two or, above 64, three quarters of one. */
  #sizeFor(rows: number): number {
    const power = 2 ** Math.ceil(Math.log2(Math.max(1, rows)));
    const size = power > 64 && rows <= 0.75 * power ? 0.75 * power : power;
    return Math.min(size, this.#cache.slots);
  }

  /** Whether a smaller graph fits the remaining rows. */
  #isTooLarge({ rows, graphs }: Started): boolean {
    return this.#sizeFor(rows.filter((row) => row.finish === null).length) < graphs.rows;
  }

  #graphsFor(rows: readonly Row[]): Graphs {
    const count = this.#sizeFor(rows.length);
    const found = this.#graphs.get(count);
    if (found !== undefined) return found;
    const graphs = { one: this.#recorder.record(() => this.#step(count)), several: null, taken: 0, rows: count };
    this.#graphs.set(count, graphs);
    this.#state.upload(rows); // recording ran the step and changed the state
    return graphs;
  }

  #more(steps: number): void {
    const started = this.#started as Started;
    const { graphs } = started;
    let left = Math.max(0, steps);
    if (left >= SEVERAL && graphs.taken >= STEPS_BEFORE_SEVERAL && graphs.rows <= MOST_ROWS_OF_SEVERAL)
      graphs.several ??= this.#recorder.record(
        () => {
          for (let i = 0; i < SEVERAL; i++) this.#step(graphs.rows);
        },
        { hasRun: true },
      );
    started.steps += left;
    graphs.taken += left;
    for (; graphs.several !== null && left >= SEVERAL; left -= SEVERAL) graphs.several.replay();
    for (; left > 0; left--) graphs.one.replay();
  }

  /**
   * Waits for the started steps and gives the rows their tokens, none after a row is done. `goOn` first starts the next
   * steps of the same rows, so that the device works while the host looks at the tokens. What they write for rows that
   * turn out to be done is dropped: in the cache it lies after their last token, where nothing reads it.
   */
  collect(goOn: boolean): void {
    const started = this.#started;
    if (started === null) return;
    const { rows, first, steps, watched } = started;
    this.#started = null;
    this.#recorder.follow();
    const going = rows.filter((row) => row.finish === null);
    const most = Math.max(0, ...going.map(tokensLeft)) - steps;
    // before switching to a smaller graph, the device has a step to do meanwhile; a watched look starts so many that
    // they wait for it
    const mayGoOn = !watched || this.#sizeFor(going.length) === this.#sizeFor(rows.length);
    if (goOn && mayGoOn && most > 0) {
      this.#started = { ...started, first: first + steps, steps: 0 };
      this.#more(Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : STEPS_AHEAD));
    }
    const { ids, logp, kept } = this.#recorder.read(() => this.#out.read()); // does not wait for the steps that were just started
    const { slots } = this.#cache;
    for (const [i, row] of rows.entries()) {
      for (let step = 0; step < steps && row.finish === null; step++) {
        const at = ((first + step) % STEPS_PER_LOOK) * slots + i;
        row.push(Number(ids[at]), logp[at] as number, kept[at] as number);
      }
    }
  }

  /** Drops steps that were started but not collected, and the rows' state on the device: the next start uploads it. */
  forget(): void {
    this.#started = null;
    this.#resident = [];
  }

  /** The recorded step: decode, draw, store, advance. Nothing here waits for a value on the host. */
  #step(count: number): void {
    scope(() =>
      noGrad(() => {
        const { rule, ...rows } = this.#state.first(count);
        sampleAndAdvance(
          this.#stepper.logits(rows),
          rule,
          { ...rows, turns: this.#turns.narrow(0, 0, count), idleSlot: this.#cache.slots },
          this.#out.tensors,
        );
      }),
    );
  }

  dispose(): void {
    this.#recorder.dispose();
    this.#stepper.dispose();
    this.#state.dispose();
    for (const own of [this.#out, this.#turns, ...this.#tables]) own.dispose();
  }
}

/**
 * The rows in the order in which attention takes them: the shortest last, long ones before short ones. Its blocks take
 * rows in turn, so rows longer than others would keep a few multiprocessors busy at the end. The other rows keep their
 * order: rows of one length side by side would all begin and end together, and leave memory idle in between.
 */
function inOrder(rows: readonly Row[]): readonly Row[] {
  const byLength = [...rows].sort((a, b) => b.position - a.position);
  const last = byLength.slice(rows.length - Math.round(rows.length * SHARE_OF_LAST));
  const isLast = new Set(last);
  return [...rows.filter((row) => !isLast.has(row)), ...last];
}

const tokensLeft = (row: Row): number => row.request.maxNewTokens - row.ids.length;
const sameRows = (a: readonly Row[], b: readonly Row[]): boolean =>
  a.length === b.length && a.every((row, i) => row === b[i]);

/** What is uploaded for each row: integers and fractions in a tensor each, so that an upload is two copies. */
const WHOLE = ['ids', 'positions', 'limits', 'slots', 'topK', 'seeds'] as const;
const FRACTIONS = ['temperature', 'topP', 'minP'] as const;

/** The state of some rows as a graph reads it. */
interface RowsState {
  ids: Tensor;
  positions: Tensor;
  /** The last position of each response; a row that reaches it becomes idle. 0 for an idle row. */
  limits: Tensor;
  slots: Tensor;
  rule: RuleTensors;
}

/** The state of all rows in order, whatever their slots. Idle rows after them stay at position 0 of the spare slot. */
class GraphRows {
  readonly #most: number;
  readonly #whole: Tensor;
  readonly #fractions: Tensor;
  /** The contents of `#whole` for idle rows, and room for their places. */
  readonly #idle: Tensor;
  readonly #places: Tensor;
  readonly #resting = new Set<number>();

  constructor(most: number, device: Device) {
    this.#most = most;
    this.#whole = keep(zeros([WHOLE.length, most], { dtype: 'int64', device }));
    this.#fractions = keep(zeros([FRACTIONS.length, most], { device }));
    this.#idle = keep(zeros([WHOLE.length, most], { dtype: 'int64', device }));
    this.#idle.select(0, WHOLE.indexOf('slots')).fill_(most); // the spare slot
    this.#places = keep(zeros([most], { dtype: 'int64', device }));
  }

  /** Makes rows idle after the steps already started, without waiting for these. */
  rest(rows: readonly number[]): void {
    const more = rows.filter((row) => !this.#resting.has(row));
    if (more.length === 0) return;
    for (const row of more) this.#resting.add(row);
    scope(() => {
      const places = this.#places.narrow(0, 0, more.length);
      places.copy_(tensor(BigInt64Array.from(more, BigInt)), true);
      this.#whole.indexCopy_(1, places, this.#idle.narrow(1, 0, more.length));
    });
  }

  /** Views of the first `count` rows' state. */
  first(count: number): RowsState {
    const whole = (name: (typeof WHOLE)[number]) => this.#whole.select(0, WHOLE.indexOf(name)).narrow(0, 0, count);
    const fraction = (name: (typeof FRACTIONS)[number]) =>
      this.#fractions.select(0, FRACTIONS.indexOf(name)).narrow(0, 0, count);
    return {
      ids: whole('ids'),
      positions: whole('positions'),
      limits: whole('limits'),
      slots: whole('slots'),
      rule: {
        temperature: fraction('temperature'),
        topK: whole('topK'),
        topP: fraction('topP'),
        minP: fraction('minP'),
        seeds: whole('seeds'),
      },
    };
  }

  upload(active: readonly Row[]): void {
    const most = this.#most;
    this.#resting.clear();
    const whole = new BigInt64Array(WHOLE.length * most);
    const fractions = new Float32Array(FRACTIONS.length * most);
    const part = <T extends BigInt64Array | Float32Array>(array: T, names: readonly string[], name: string): T =>
      array.subarray(names.indexOf(name) * most, (names.indexOf(name) + 1) * most) as T;
    const wholeOf = (name: (typeof WHOLE)[number]) => part(whole, WHOLE, name);
    const fractionsOf = (name: (typeof FRACTIONS)[number]) => part(fractions, FRACTIONS, name);
    const [ids, positions, limits] = [wholeOf('ids'), wholeOf('positions'), wholeOf('limits')];
    const [places, topK, seeds] = [wholeOf('slots'), wholeOf('topK'), wholeOf('seeds')];
    const [temperature, topP, minP] = [fractionsOf('temperature'), fractionsOf('topP'), fractionsOf('minP')];
    places.fill(BigInt(most));
    temperature.fill(1);
    topP.fill(1);
    for (const [i, row] of active.entries()) {
      const { rule } = row;
      places[i] = BigInt(row.slot);
      ids[i] = BigInt(row.last);
      positions[i] = BigInt(row.position);
      limits[i] = BigInt(row.promptLength + row.request.maxNewTokens - 1);
      topK[i] = BigInt(rule.topK);
      seeds[i] = BigInt(row.seed);
      temperature[i] = rule.temperature;
      topP[i] = rule.topP;
      minP[i] = rule.minP;
    }
    scope(() => {
      this.#whole.copy_(tensor(whole, { shape: [WHOLE.length, most] }));
      this.#fractions.copy_(tensor(fractions, { shape: [FRACTIONS.length, most] }));
    });
  }

  dispose(): void {
    for (const own of [this.#whole, this.#fractions, this.#idle, this.#places]) own.dispose();
  }
}
