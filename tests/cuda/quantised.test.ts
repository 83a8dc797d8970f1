/** Quantised weights. The codes come from the CPU: both devices hold the same, so that even 4 bits must agree to rounding. */
import { describe, expect, it } from 'vitest';
import { quantTypes } from '../../src/models/index.ts';
import { QuantisedMatrix } from '../../src/nn/index.ts';
import { aten, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, gap, gapOfFunction, hasCuda, precisions } from './device.ts';

const cases = quantTypes.flatMap((type) => [256, 77].map((inputs) => [type, inputs] as const));

describe.each(cases)(`%s with %i inputs on ${device}`, (type, inputs) => {
  function matrices(body: (here: QuantisedMatrix, there: QuantisedMatrix) => void): void {
    scope(() => {
      seed(2);
      const weight = randn([300, inputs]).mul(0.1);
      const here = QuantisedMatrix.of(weight, type);
      const there = QuantisedMatrix.of(weight, type, device);
      try {
        body(here, there);
      } finally {
        here.dispose();
        there.dispose();
      }
    });
  }

  it('gives the same weights back', () =>
    matrices((here, there) => expect(gap(there.dequantise(), here.dequantise())).toBeLessThanOrEqual(1e-6)));

  it('gives them without a kernel too', () =>
    matrices((here, there) => {
      const composed = aten('attune::dequantise_composed', ...there.arguments(), 'float32');
      expect(gap(composed, here.dequantise())).toBeLessThanOrEqual(1e-6);
    }));

  // in bf16 the CPU of int8 has a product of its own, which src/nn/quantised.test.ts holds to its numbers
  it.each(hasCuda ? precisions : precisions.slice(0, 1))('multiplies in %s', (dtype, bound) =>
    matrices((here, there) => {
      const multiply = (x: Tensor) => (x.device === 'cpu' ? here : there).multiply(x);
      expect(gapOfFunction([randn([40, inputs])], multiply, dtype)).toBeLessThanOrEqual(bound);
    }),
  );
});
