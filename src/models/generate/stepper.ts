/**
 * One step of decoding by the native plan (plan.ts) where there is one, else by the general path (decoding.ts). The plan is made
 * once and kept until adapters change; after some steps of few rows it is made again with copies in bf16, where these are faster.
 */
import type { Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache/cache.ts';
import { generalLogits } from './decoding.ts';
import { DecodePlan, type PlanCopies, type StepLimits, type StepRows } from './plan.ts';
import type { HeldRows } from './row-tensors.ts';
import { type Drawn, type DrawnTensors, type RuleTensors, sampleNext } from './sampling.ts';

/** Calls for steps of few rows after which copies in bf16 are made: they cost as much as some 8 to 30 steps of one row gain. */
const CALLS_BEFORE_HALVES = 16;

interface HeldPlan {
  plan: DecodePlan | null;
  arrangement: number;
  hasHalves: boolean;
}

export class Stepper {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #copies: () => PlanCopies;
  #held: HeldPlan | null = null;
  #callsOfFew = 0;

  /** `copies`: those for the decoder's present arrangement. */
  constructor(decoder: Decoder, cache: KvCache, copies: () => PlanCopies = () => ({})) {
    this.#decoder = decoder;
    this.#cache = cache;
    this.#copies = copies;
  }

  /** The next token of each row. */
  next(rows: StepRows, rule: RuleTensors): DrawnTensors {
    const plan = this.#planFor(rows.ids.size(0));
    if (plan !== null) return plan.step(rows, rule);
    return sampleNext(generalLogits(this.#decoder, this.#cache, rows), rule, rows.positions.add(1));
  }

  /** The same on the host, for rows on the CPU that are held, and for several steps; null where it is not one call. */
  nextHeld(rows: HeldRows, ids: readonly number[], positions: readonly number[], limits: StepLimits): Drawn | null {
    if (this.#decoder.device !== 'cpu') return null;
    return this.#planFor(ids.length)?.stepLists(ids, positions, rows.slots, rows.rule, limits) ?? null;
  }

  /** The logits of each row's next token, for rows whose logits are changed before the draw. */
  logits(rows: StepRows): Tensor {
    return this.#planFor(rows.ids.size(0))?.logits(rows) ?? generalLogits(this.#decoder, this.#cache, rows);
  }

  /** The plan for so many rows, or null for the general path. */
  #planFor(rows: number): DecodePlan | null {
    const { arrangement } = this.#decoder;
    if (this.#held?.arrangement !== arrangement) this.#held = this.#made();
    if (!this.#held.hasHalves && this.#held.plan?.gainsByHalves(rows)) {
      this.#callsOfFew++;
      if (this.#wantsHalves) this.#held = this.#made();
    }
    const { plan } = this.#held;
    return plan?.takes(rows) ? plan : null;
  }

  get #wantsHalves(): boolean {
    return this.#callsOfFew > CALLS_BEFORE_HALVES;
  }

  #made(): HeldPlan {
    this.dispose();
    const { halves, ...copies } = this.#copies();
    const hasHalves = this.#wantsHalves;
    const plan = DecodePlan.of(this.#decoder, this.#cache, hasHalves && halves ? { ...copies, halves } : copies);
    return { plan, arrangement: this.#decoder.arrangement, hasHalves };
  }

  dispose(): void {
    this.#held?.plan?.dispose();
    this.#held = null;
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}
