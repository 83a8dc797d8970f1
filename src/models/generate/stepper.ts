/**
 * One step of decoding by the native plan (plan.ts) if there is one, else by the general path (decoding.ts). The plan
 * is made once and kept until adapters change. After some steps of few rows it is made again with copies in fewer bits,
 * if these are faster. The tensors that describe a step's rows are kept until rows come or go.
 */
import { type Device, type DType, keep, type Tensor, tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache/cache.ts';
import { generalLogits } from './decoding.ts';
import { type DecodePlan, HeldPlan, type PlanCopies, type StepLimits, type StepRows } from './plan.ts';
import type { Row } from './row.ts';
import { type Drawn, type DrawnTensors, type RuleTensors, ruleTensors, sampleNext } from './sampling.ts';

/**
 * Steps of few rows after which copies in fewer bits are made: about as many as gain what making them costs. Of float32 first those in 12 and 16 bits
 * (8 to 30 steps), then those in 28 (20 to 300); of bfloat16 those in 12 (some 30).
 */
const STEPS_BEFORE_COPIES: Readonly<Partial<Record<DType, readonly number[]>>> = {
  float32: [16, 128],
  bfloat16: [32],
};

export class Stepper {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #held: HeldPlan;
  /** Numbers of steps of few rows, and how many of them the plan has behind it. */
  readonly #stages: readonly number[];
  #stage = 0;
  #stepsOfFew = 0;

  /** `copies`: those for the decoder's present arrangement. */
  constructor(decoder: Decoder, cache: KvCache, copies: () => PlanCopies = () => ({})) {
    this.#decoder = decoder;
    this.#cache = cache;
    this.#stages = STEPS_BEFORE_COPIES[decoder.dtype] ?? [];
    this.#held = new HeldPlan(decoder, cache, () => {
      const { exact, ...others } = copies();
      this.#stage = this.#stages.filter((steps) => steps <= this.#stepsOfFew).length;
      return this.#stage > 0 && exact ? { ...others, exact: () => exact(this.#stage > 1) } : others;
    });
  }

  /** The next token of each row. */
  next(rows: StepRows, rule: RuleTensors): DrawnTensors {
    const plan = this.#planFor(rows.ids.size(0));
    if (plan !== null) return plan.step(rows, rule);
    return sampleNext(generalLogits(this.#decoder, this.#cache, rows), rule, rows.positions.add(1));
  }

  /** The same on the host for rows held on the CPU, and for several steps; null if it cannot be done in one call. */
  nextHeld(rows: HeldRows, ids: readonly number[], positions: readonly number[], limits: StepLimits): Drawn | null {
    const before = this.#stepsOfFew;
    const plan = this.#decoder.device === 'cpu' ? this.#planFor(ids.length) : null;
    if (plan === null) return null;
    const drawn = plan.stepLists(ids, positions, rows.slots, rows.rule, limits);
    const isCounted = this.#stepsOfFew > before; // as one step
    if (isCounted) this.#stepsOfFew += drawn.ids.length / ids.length - 1;
    return drawn;
  }

  /** The logits of each row's next token, for rows whose logits are changed before the draw. */
  logits(rows: StepRows): Tensor {
    return this.#planFor(rows.ids.size(0))?.logits(rows) ?? generalLogits(this.#decoder, this.#cache, rows);
  }

  /** The plan for the next step of this many rows, or null for the general path. */
  #planFor(rows: number): DecodePlan | null {
    const { plan } = this.#held;
    if (plan === null || !plan.takes(rows)) return null;
    const awaitsCopies = this.#stage < this.#stages.length && plan.gainsByCopies(rows);
    if (!awaitsCopies) return plan;
    if (this.#stepsOfFew++ < (this.#stages[this.#stage] as number)) return plan;
    this.#held.dispose();
    return this.#held.plan; // made again, with copies
  }

  dispose(): void {
    this.#held.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The tensors of a step's rows that change only when rows come or go. */
export interface HeldRows {
  rule: RuleTensors;
  slots: Tensor;
}

/** Makes them once and keeps them between steps. */
export class RowTensors {
  readonly #device: Device;
  #rows: readonly Row[] = [];
  #held: HeldRows | null = null;

  constructor(device: Device) {
    this.#device = device;
  }

  /** The tensors of these rows; the same object for as long as the rows stay the same. */
  of(rows: readonly Row[]): HeldRows {
    if (this.#held !== null && sameRows(rows, this.#rows)) return this.#held;
    this.dispose();
    const rule = ruleTensors(
      rows.map((row) => row.rule),
      rows.map((row) => row.seed),
      this.#device,
    );
    const slots = tensor(
      BigInt64Array.from(rows, (row) => BigInt(row.slot)),
      { device: this.#device },
    );
    for (const each of [...Object.values(rule), slots]) keep(each);
    this.#rows = [...rows];
    this.#held = { rule, slots };
    return this.#held;
  }

  dispose(): void {
    if (this.#held === null) return;
    for (const each of [...Object.values(this.#held.rule), this.#held.slots]) each.dispose();
    this.#held = null;
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Comparing the rows themselves is enough: `dispose` is called if a row loses its slot before it is done. */
const sameRows = (a: readonly Row[], b: readonly Row[]): boolean =>
  a.length === b.length && a.every((row, i) => row === b[i]);
