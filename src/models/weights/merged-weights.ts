/**
 * Copies of a model's matrices with its adapters' change in them, so that decoding with adapters costs what it costs without. They are
 * made again when the weights have changed.
 *
 * A change of W that is smaller than half the distance of two bf16 numbers would vanish if W + s·BA were rounded to the nearest: after the
 * first steps of training that is nearly all of it. So it is rounded up or down by a fixed pattern, up as often as the rest is large, and
 * on average nothing is lost.
 */
import { arange, aten, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Projection } from '../decoder/projection.ts';
import { SHARE_OF_COPIES } from './share.ts';

export class MergedWeights {
  readonly #copies = new Map<Projection, Tensor>();
  readonly #state: () => number;
  #made = -1;

  /** `state`: a number that changes with the weights. */
  private constructor(projections: readonly Projection[], state: () => number) {
    this.#state = state;
    try {
      for (const projection of projections) {
        const { weight } = projection;
        if (weight !== null) this.#copies.set(projection, keep(weight.detach().clone()));
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** For a decoder with adapters that are a change of its matrices and nothing else, in bf16 on CUDA; null otherwise. */
  static of(decoder: Decoder, state: () => number, freeBytes: number): MergedWeights | null {
    if (!decoder.device.startsWith('cuda') || decoder.dtype !== 'bfloat16') return null;
    const adapted = [...decoder.projections()].filter(({ adapter }) => adapter !== null);
    const bytes = adapted.reduce((sum, { inputs, outputs }) => sum + 2 * inputs * outputs, 0);
    if (adapted.length === 0 || bytes > freeBytes * SHARE_OF_COPIES) return null;
    const whole = noGrad(() =>
      scope(() => adapted.every(({ weight, adapter }) => weight !== null && adapter?.changedWeight() !== null)),
    );
    return whole ? new MergedWeights(adapted, state) : null;
  }

  /** Bytes of all copies. */
  get bytes(): number {
    return this.#copies.values().reduce((sum, { numel }) => sum + 2 * numel, 0);
  }

  /** The copy of an adapted projection's matrix. */
  weightOf(projection: Projection): Tensor | null {
    return this.#copies.get(projection) ?? null;
  }

  /** Makes the copies again where the weights have changed. */
  refresh(): void {
    const state = this.#state();
    if (state === this.#made) return;
    noGrad(() => {
      for (const [{ adapter }, copy] of this.#copies)
        scope(() => {
          const changed = adapter?.changedWeight();
          if (changed) copy.copy_(rounded(changed));
        });
    });
    this.#made = state;
  }

  dispose(): void {
    for (const copy of this.#copies.values()) copy.dispose();
    this.#copies.clear();
  }
}

/**
 * float32 numbers that are bf16 numbers: rounded up in magnitude where their lower 16 bits and a number from 0 to 65,535, the same for
 * the same place, together carry.
 */
export function rounded(wide: Tensor): Tensor {
  const bits = aten<Tensor>('view.dtype', wide.contiguous(), 'int32');
  const shift = (x: Tensor, by: number) => aten<Tensor>('bitwise_right_shift.Tensor_Scalar', x, by);
  // a hash of the place: multiplications wrap around
  let place = arange(0, wide.numel, 1, { dtype: 'int32', device: wide.device }).mul(-1640531535);
  place = aten<Tensor>('bitwise_xor.Tensor', place, shift(place, 15)).mul(-2048144777);
  const noise = aten<Tensor>('bitwise_and.Scalar', aten('bitwise_xor.Tensor', place, shift(place, 13)), 0xffff);
  const carried = aten<Tensor>('bitwise_and.Scalar', bits.add(noise.reshape(...wide.shape)), -65536);
  return aten('view.dtype', carried, 'float32');
}
