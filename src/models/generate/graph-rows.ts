/**
 * The state of all slots as a captured graph reads it: two tensors on the device, one of whole numbers and one of fractions, so
 * that an upload is two copies. Idle rows stay at position 0 of the spare slot.
 */
import { type Device, keep, scope, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import type { Row } from './row.ts';
import type { RuleTensors } from './sampling.ts';

const WHOLE = ['ids', 'positions', 'limits', 'slots', 'topK', 'seeds'] as const;
const FRACTIONS = ['temperature', 'topP', 'minP'] as const;

export class GraphRows {
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
