/** Quantised weights. The codes come from the CPU: both devices hold the same, so that even 4 bits must agree to rounding. */
import { describe, expect, it } from 'vitest';
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import { generalLogits } from '../../src/models/generate/decoding.ts';
import { DecodePlan } from '../../src/models/generate/plan.ts';
import { initModel, quantTypes } from '../../src/models/index.ts';
import { QuantisedMatrix } from '../../src/nn/index.ts';
import { aten, type DType, integers, linear, noGrad, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
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

describe.each(quantTypes)(`the few rows of a decoding step from %s on ${device}`, (type) => {
  // whole tiles of 16 rows in one and in several parts, half tiles, inputs that are no whole spans of 256, more inputs than eight rows of
  // x leave room for, and matrices that are large
  const shapes = [
    { parts: [512, 128, 128], inputs: 1024 },
    { parts: [1024], inputs: 3072 },
    { parts: [8192, 8192], inputs: 256 },
    { parts: [2560, 16], inputs: 1088 },
    { parts: [48], inputs: 16384 },
    { parts: [72, 56], inputs: 192 },
    { parts: [4000, 160], inputs: 6080 },
  ];
  it.each(shapes)('$parts outputs of $inputs inputs', ({ parts, inputs }) =>
    scope(() => {
      seed(4);
      const plain = parts.map((rows) => randn([rows, inputs]).mul(0.05));
      using matrix = QuantisedMatrix.of(plain, type, device);
      const weights = matrix.dequantise('bfloat16');
      const x = randn([32, inputs]).to({ device, dtype: 'bfloat16' });
      for (const rows of [1, 2, 3, 5, 8, 9, 16, 20, 32]) {
        const some = x.narrow(0, 0, rows);
        const found = noGrad(() => matrix.multiply(some));
        expect(gap(found, linear(some, weights))).toBeLessThanOrEqual(1e-2);
        if (hasCuda)
          expect(
            gap(
              found.narrow(0, 0, 1),
              noGrad(() => matrix.multiply(x.narrow(0, 0, 1))),
            ),
          ).toBe(0);
      }
    }),
  );

  it.each([
    [256, 512],
    [1088, 6144],
  ])('is what the general path gives, %i and %i wide', (hidden_size, intermediate_size) => {
    const shape = {
      ...{ model_type: 'qwen3', vocab_size: 96, hidden_size, intermediate_size, num_hidden_layers: 2 },
      ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 64, max_position_embeddings: 64 },
      ...{ rms_norm_eps: 1e-5, tie_word_embeddings: false },
    };
    const dtype: DType = hasCuda ? 'bfloat16' : 'float32';
    using model = initModel(shape, { seed: 1, device, dtype, quantType: type });
    const cacheOf = () => {
      const cache = new KvCache(model.decoder.spec, { slots: 20, length: 16, blocks: 20 }, { dtype, device });
      for (let slot = 0; slot < 20; slot++) cache.setTable(slot, [19 - slot]);
      cache.upload();
      return cache;
    };
    const caches = [cacheOf(), cacheOf()] as const;
    const plan = DecodePlan.of(model.decoder, caches[0]) as DecodePlan;
    scope(() =>
      noGrad(() => {
        for (const count of [1, 5, 16, 20]) {
          const at = (value: (i: number) => number) =>
            integers(
              Array.from({ length: count }, (_, i) => value(i)),
              { device },
            );
          const rows = { ids: at((i) => (7 * i + count) % 96), positions: at(() => 0), slots: at((i) => i) };
          expect(gap(plan.logits(rows), generalLogits(model.decoder, caches[1], rows))).toBeLessThanOrEqual(4e-2);
        }
      }),
    );
    for (const each of [plan, ...caches]) each.dispose();
  });
});
