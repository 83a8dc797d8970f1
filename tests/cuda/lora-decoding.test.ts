/** Decoding with an adapter through merged copies of its matrices, against the trainer's log-probs with the adapter as it is. */
import { expect, it } from 'vitest';
import { addLora, initModel, type Model, packSequences, Sampler } from '../../src/models/index.ts';
import { noGrad, scope } from '../../src/tensor/index.ts';
import { device, onlyOnCuda } from './device.ts';

const shape = {
  model_type: 'qwen3',
  vocab_size: 512,
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
};

function adapted(): Model {
  const model = initModel(shape, { seed: 3, device, dtype: 'bfloat16' });
  addLora(model, { r: 8, alpha: 16 });
  return model;
}

function change(model: Model, size: number): void {
  noGrad(() => {
    for (const [name, parameter] of model.adapters?.parameters() ?? [])
      if (name.includes('lora_B')) parameter.normal_(0, size);
  });
}

/** The mean and the largest difference between the sampler's log-probs and the trainer's over 8 responses. */
async function gaps(model: Model, sampler: Sampler): Promise<{ mean: number; most: number }> {
  const prompt = [5, 9, 200, 31];
  const responses = (await sampler.generate([{ prompt, maxNewTokens: 40, samples: 8, seed: 1 }])).flat();
  const differences = responses.flatMap(({ ids, logprobs }) =>
    scope(() =>
      noGrad(() => {
        const batch = packSequences([[...prompt, ...ids]], device);
        const logits = model.decoder.logits(model.decoder.forward(batch)).to('float32').logSoftmax(-1);
        return ids.map(
          (id, i) =>
            (logits
              .select(0, prompt.length + i - 1)
              .select(0, id)
              .item() as number) - (logprobs[i] as number),
        );
      }),
    ),
  );
  const sizes = differences.map(Math.abs);
  return { mean: sizes.reduce((sum, size) => sum + size, 0) / sizes.length, most: Math.max(...sizes) };
}

onlyOnCuda('decoding with an adapter', () => {
  it.each([0.001, 0.02, 0.2])('the sampler agrees with the trainer, B of size %d', async (size) => {
    using model = adapted();
    using sampler = new Sampler(model, { slots: 8, maxLength: 64 });
    const bare = await gaps(model, sampler);
    change(model, size);
    const { mean, most } = await gaps(model, sampler);
    console.log(
      `B ${size}: gap ${mean.toExponential(2)}, at most ${most.toExponential(2)}; without: ${bare.mean.toExponential(2)}, ${bare.most.toExponential(2)}`,
    );
    expect(mean).toBeLessThan(3 * bare.mean + 1e-3);
    expect(most).toBeLessThan(0.15);
  });

  it('follows the adapter as it is trained, and goes back to the base', async () => {
    using model = adapted();
    using sampler = new Sampler(model, { slots: 4, maxLength: 64 });
    const greedy = async () =>
      (await sampler.generate([{ prompt: [7, 8], maxNewTokens: 24, temperature: 0 }])).flat()[0]?.ids;
    const base = await greedy();
    change(model, 0.5);
    const changed = await greedy();
    expect(changed).not.toEqual(base);
    noGrad(() => {
      for (const [name, parameter] of model.adapters?.parameters() ?? [])
        if (name.includes('lora_B')) parameter.zero_();
    });
    expect(await greedy()).toEqual(base);
  });
});
