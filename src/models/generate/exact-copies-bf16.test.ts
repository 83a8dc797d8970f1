/** Decoding of a bfloat16 model from copies in 12 bits, where the CPU has no instructions for bf16: the same bits as from its matrices. */
import { describe, expect, it } from 'vitest';
import { aten, liveTensors, noGrad, scope, type Tensor, zeros } from '../../tensor/index.ts';
import { initModel, type Model } from '../index.ts';
import { ExactCopies } from '../weights/exact-copies.ts';
import {
  cacheOf,
  disposable,
  firstLogits,
  rowsThatDiffer,
  scatterFar,
  shapes,
  sizesOfAll,
} from './exact-copies.test-support.ts';
import { DecodePlan } from './plan.ts';
import { SHAPE } from './small-model.test-support.ts';

/** Whether this CPU gains from such copies. */
const shortens = scope(() => aten<Tensor>('attune::exact_shorts', zeros([16, 8], { dtype: 'bfloat16' })).numel > 0);

/** Drawn in f32 and rounded: `normal_` in bf16 draws a zero in each few hundred numbers, and zeros have no code. */
function narrow(config: Record<string, unknown>): Model {
  const model = initModel(config, { seed: 1, dtype: 'bfloat16' });
  noGrad(() => {
    for (const [, parameter] of model.decoder.parameters())
      scope(() => void parameter.copy_(zeros(parameter.shape).normal_(0, 0.3)));
  });
  return model;
}

describe('a bfloat16 model', () => {
  for (const [name, config] of Object.entries(shapes))
    it(`writes the same with copies, where there are any, to the bit: ${name}`, async () => {
      using model = narrow(config);
      expect(await rowsThatDiffer(model)).toEqual([]);
    });

  it('has copies of three quarters of its bytes and little more, or none where this CPU does not gain', () => {
    const before = liveTensors();
    {
      const sizes = { hidden_size: 256, intermediate_size: 512, vocab_size: 512 };
      using model = narrow({ ...SHAPE, ...sizes, model_type: 'llama' });
      using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
      copies.refresh(0);
      const matrices = [...model.decoder.projections()].map(({ weight }) => weight?.numel ?? 0);
      const bytes = 2 * matrices.reduce((sum, numel) => sum + numel, model.decoder.headWeight.numel);
      expect(copies.bytes / bytes).toBeGreaterThanOrEqual(shortens ? 0.75 : 0);
      expect(copies.bytes / bytes).toBeLessThan(shortens ? 0.85 : 1e-9);
      const cache = cacheOf(model);
      const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
      expect([plan.gainsByCopies(1), plan.gainsByCopies(48)]).toEqual([shortens, false]);
      for (const each of [plan, cache]) each.dispose();
    }
    expect(liveTensors()).toBe(before);
  });

  // with numbers of very different size
  it.each(sizesOfAll)('has the same logits from copies, to the bit: $hidden_size', (sizes) => {
    using model = narrow({ ...SHAPE, ...sizes, model_type: 'qwen2', max_position_embeddings: 64 });
    for (const { weight } of model.decoder.projections()) scatterFar(weight as Tensor);
    scatterFar(model.decoder.headWeight);
    using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    copies.refresh(0);
    if (shortens && sizes.hidden_size > 100) expect(copies.bytes).toBeGreaterThan(0);
    const rows = 26;
    const cache = cacheOf(model, rows);
    const plain = DecodePlan.of(model.decoder, cache) as DecodePlan;
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => copies }) as DecodePlan;
    for (let count = 1; count <= rows; count++) expect(firstLogits(plan, count)).toEqual(firstLogits(plain, count));
    for (const each of [plan, plain, cache]) each.dispose();
  });

  it.runIf(shortens)(
    'is read from the copy while its matrix is as it was, and from the matrix once that was written to',
    () => {
      using model = narrow({ ...SHAPE, model_type: 'llama', hidden_size: 64, vocab_size: 64 });
      const { headWeight } = model.decoder;
      using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
      copies.refresh(0);
      const cache = cacheOf(model);
      const plan = DecodePlan.of(model.decoder, cache, { exact: () => copies }) as DecodePlan;
      const expected = firstLogits(plan, 1);
      const copy = copies.copyOf(headWeight) as Tensor;
      noGrad(() => scope(() => void copy.narrow(0, copy.numel - 24, 24).zero_()));
      expect(firstLogits(plan, 1)).not.toEqual(expected);
      noGrad(() => void headWeight.mul_(1));
      expect(firstLogits(plan, 1)).toEqual(expected);
      for (const each of [plan, cache]) each.dispose();
    },
  );
});
