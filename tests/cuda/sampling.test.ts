/** Drawing tokens: the device draws what the CPU draws. Small and large vocabularies have kernels of their own. */
import { describe, expect, it } from 'vitest';
import { aten, integers, randn, scope, seed, type Tensor, tensor } from '../../src/tensor/index.ts';
import { device, gap, hasCuda } from './device.ts';

/** One token per row, with other rules in every row. */
function draw(logits: Tensor, place: string): { ids: number[]; logp: Tensor } {
  const rows = Array.from({ length: logits.size(0) }, (_, i) => i);
  const floats = (pick: (i: number) => number) => tensor(Float32Array.from(rows, pick), { device: place });
  const whole = (pick: (i: number) => number) => integers(rows.map(pick), { device: place });
  const [ids, logp] = aten<Tensor[]>(
    'attune::sample',
    logits.to(place),
    floats((i) => [0, 0.7, 1, 1.3][i % 4] as number),
    whole((i) => (i % 3 === 0 ? 50 : 0)),
    floats((i) => (i % 2 === 0 ? 0.9 : 1)),
    floats((i) => (i % 5 === 0 ? 0.05 : 0)),
    whole((i) => i),
    whole((i) => i * 7),
  ) as [Tensor, Tensor];
  return { ids: ids.numbers(), logp };
}

const sizes: [rows: number, words: number][] = hasCuda
  ? [
      [512, 5000],
      [256, 32_003],
      [256, 151_936],
    ]
  : [[64, 5000]];

describe(`drawing on ${device}`, () => {
  it.each(sizes)('%i rows of %i words', (rows, words) =>
    scope(() => {
      seed(3);
      const logits = randn([rows, words]).mul(3);
      const here = draw(logits, 'cpu');
      const there = draw(logits, device);
      // Two words whose cumulative probabilities lie within a rounding of the drawn number may change places.
      const different = here.ids.flatMap((id, i) => (id === there.ids[i] ? [] : [i]));
      expect(different.length).toBeLessThanOrEqual(2);
      const alike = integers(
        rows === different.length ? [] : here.ids.flatMap((_, i) => (different.includes(i) ? [] : [i])),
      );
      const pick = (logp: Tensor) => logp.to('cpu').indexSelect(0, alike);
      expect(gap(pick(there.logp), pick(here.logp))).toBeLessThanOrEqual(1e-4);
    }),
  );
});
