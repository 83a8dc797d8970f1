/** The end of a step of few rows: the vocabulary's product with the norm before it. */
import { describe, expect, it } from 'vitest';
import { initModel, type Model } from '../../src/models/index.ts';
import { noGrad, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, gap, hasCuda } from './device.ts';
import { withSteps } from './steps.ts';

/** More rows than the kernel takes: libtorch multiplies them. */
const MANY = 40;

function modelOf(width: number, words: number): Model {
  const model = initModel(
    {
      ...{ model_type: 'qwen3', vocab_size: words, hidden_size: width, intermediate_size: 64, num_hidden_layers: 1 },
      ...{ head_dim: 64, num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 64 },
      ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false },
    },
    { seed: 1, device, dtype: 'bfloat16' },
  );
  noGrad(() => {
    seed(2);
    for (const [, parameter] of model.decoder.parameters()) parameter.normal_(0, parameter.ndim === 1 ? 1 : 0.05);
  });
  return model;
}

const shapes: [width: number, words: number][] = hasCuda
  ? [
      [1024, 151_936],
      [1024, 40_008],
      [2048, 33_000],
      [2560, 32_768],
    ]
  : [[128, 500]];

describe.each(shapes)(`the end of a step on ${device}: %i wide, %i words`, (width, words) => {
  const inSteps = (body: (logits: (rows: number) => Tensor, model: Model) => void): void => {
    using model = modelOf(width, words);
    withSteps(model, MANY, (logits) => body(logits, model));
  };

  // 17 to 32 rows of models 1,024 wide have the kernel, too; in the rest of such a step libtorch may multiply, whose bits depend on the rows
  it('gives a row the same among 17 to 32', () =>
    inSteps((logits, model) => {
      for (const [name, parameter] of model.decoder.parameters())
        if (/(o_proj|down_proj)\.weight$/.test(name)) parameter.zero_(); // the layer adds nothing to the embedding
      const most = logits(32);
      const counts = width === 1024 || !hasCuda ? [16, 17, 18, 23, 24, 25, 30, 31] : [];
      for (const count of [...counts, 32]) {
        const same = logits(count).eq(most.narrow(0, 0, count));
        expect(same.all().item(), `${count} rows`).toBe(1);
      }
      const many = logits(MANY);
      expect(gap(most, many.narrow(0, 0, 32))).toBeLessThanOrEqual(0.02);
    }));

  it('gives few rows the logits of many, and a row the same alone', () =>
    inSteps((logits) => {
      const many = logits(MANY);
      const most = logits(16);
      for (const count of [1, 3, 8, 9, 16]) {
        const some = logits(count);
        expect(gap(some, many.narrow(0, 0, count)), `${count} rows`).toBeLessThanOrEqual(0.02);
        expect(some.numbers()).toEqual(most.narrow(0, 0, count).contiguous().numbers());
      }
      expect(gap(logits(32), many.narrow(0, 0, 32))).toBeLessThanOrEqual(0.02);
    }));
});
