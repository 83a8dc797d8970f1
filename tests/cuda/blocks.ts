/** Block tables for tests: the blocks of a slot lie in no order. */
import { type Tensor, tensor } from '../../src/tensor/index.ts';

/** The tables of `slots` slots of `width` blocks each, [slots, width], int32; no two name the same block. */
export function scatteredTables(slots: number, width: number): Tensor {
  const count = slots * width;
  const divides = (a: number, b: number): number => (b === 0 ? a : divides(b, a % b));
  let step = Math.ceil(count * 0.6);
  while (divides(step, count) !== 1) step++;
  return tensor(
    Int32Array.from({ length: count }, (_, i) => (i * step + 1) % count),
    { shape: [slots, width] },
  );
}
