/**
 * One step of decoding by the native plan (plan.ts) where there is one, else by the general path (decoding.ts). The plan is made
 * once and kept until adapters change.
 */
import type { Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache/cache.ts';
import { generalLogits } from './decoding.ts';
import { type DecodePlan, HeldPlan, type PlanCopies, type StepLimits, type StepRows } from './plan.ts';
import type { HeldRows } from './row-tensors.ts';
import { type Drawn, type DrawnTensors, type RuleTensors, sampleNext } from './sampling.ts';

export class Stepper {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #held: HeldPlan;

  /** `copies`: those for the decoder's present arrangement. */
  constructor(decoder: Decoder, cache: KvCache, copies: () => PlanCopies = () => ({})) {
    this.#decoder = decoder;
    this.#cache = cache;
    this.#held = new HeldPlan(decoder, cache, copies);
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
    const { plan } = this.#held;
    return plan?.takes(rows) ? plan : null;
  }

  dispose(): void {
    this.#held.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}
