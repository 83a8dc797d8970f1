/** What the steps of a CUDA graph draw: tokens, log-probs and kept shares in one tensor, so that the host reads them by one copy. */
import { aten, type Device, keep, scope, type Tensor, zeros } from '../../tensor/index.ts';
import type { DrawnTensors } from './sampling.ts';

export class DrawnTokens {
  /** [turns, slots] each. */
  readonly tensors: DrawnTensors;
  readonly #all: Tensor;

  constructor(turns: number, slots: number, device: Device) {
    this.#all = keep(zeros([2, turns, slots], { dtype: 'int64', device }));
    this.tensors = scope(() => {
      const [ids, rest] = [this.#all.select(0, 0), this.#all.select(0, 1)];
      const shares = aten<Tensor>('view.dtype', rest, 'float32').reshape(2, turns, slots);
      return { ids: keep(ids), logp: keep(shares.select(0, 0)), kept: keep(shares.select(0, 1)) };
    });
  }

  read(): { ids: BigInt64Array; logp: Float32Array; kept: Float32Array } {
    const all = this.#all.data() as BigInt64Array;
    const count = all.length / 2;
    const [ids, rest] = [all.subarray(0, count), all.subarray(count)];
    const shares = new Float32Array(rest.buffer, rest.byteOffset, 2 * count);
    return { ids, logp: shares.subarray(0, count), kept: shares.subarray(count) };
  }

  dispose(): void {
    for (const own of [...Object.values(this.tensors), this.#all]) own.dispose();
  }
}
