/** Chapter 10. What training takes in memory by method and size, and why decoding wants large batches. */
import { initModel, type MemoryOptions, Sampler, trainingMemory } from '../../models/index.ts';
import type { Curve, Experiment, Lab } from './experiment.ts';

const GiB = 2 ** 30;
/** Qwen3's shapes: layers, width, inner width, heads, key-value heads. */
const shapes: Record<string, [number, number, number, number, number]> = {
  '0.6B': [28, 1024, 3072, 16, 8],
  '1.7B': [28, 2048, 6144, 16, 8],
  '4B': [36, 2560, 9728, 32, 8],
  '8B': [36, 4096, 12288, 32, 8],
  '14B': [40, 5120, 17408, 40, 8],
  '32B': [64, 5120, 25600, 64, 8],
};
const lora = { r: 16, alpha: 32 };
const ways: [string, Partial<MemoryOptions>][] = [
  ['all weights', {}],
  ['all weights, checkpointing', { checkpointing: true }],
  ['LoRA, checkpointing', { lora, checkpointing: true }],
  ['QLoRA (4 bits), checkpointing', { lora, checkpointing: true, quantType: 'int4' }],
];
const batches = [1, 2, 4, 8, 16, 32];

export const scale: Experiment = {
  seconds: 60,
  async run(lab) {
    const memory = memoryCurves();
    const speed = await decodingSpeed(lab);
    const at8B = memory.map(({ name, y }) => ({ name, gib: y[3] as number }));
    const [all, , adapters, quantised] = at8B as [{ gib: number }, unknown, { gib: number }, { gib: number }];
    return {
      figures: [
        {
          title: 'Memory to train, 8,192 tokens at once',
          xLabel: 'parameters (billions)',
          yLabel: 'GiB',
          yScale: 'log',
          curves: memory,
        },
        {
          title: 'Decoding: tokens per second as a multiple of one sequence’s',
          xLabel: 'sequences at once',
          yLabel: 'times',
          ofThisMachine: true,
          curves: [speed],
        },
      ],
      findings: [
        {
          claim: 'an 8B model trains on a GPU of 16 GiB only as QLoRA; all its weights want two of 80 GiB',
          holds: all.gib > 100 && adapters.gib > 16 && quantised.gib < 16,
          numbers: at8B.map(({ name, gib }) => `${name} ${gib.toFixed(0)} GiB`).join(', '),
        },
        {
          claim: 'sequences share the reading of the weights: sixteen cost far less than sixteen times one',
          holds: (speed.y[4] as number) > 2.5,
          numbers: `${(speed.y[4] as number).toFixed(1)} times the tokens per second at 16 sequences`,
        },
      ],
    };
  },
};

function memoryCurves(): Curve[] {
  const each = Object.values(shapes).map(([layers, width, inner, heads, groups]) => {
    using model = initModel(
      {
        model_type: 'qwen3',
        vocab_size: 151936,
        hidden_size: width,
        intermediate_size: inner,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: groups,
        head_dim: 128,
        tie_word_embeddings: width <= 2560,
        max_position_embeddings: 32768,
      },
      { device: 'meta', dtype: 'bfloat16' },
    );
    return ways.map(([, options]) =>
      trainingMemory(model, { dtype: 'bfloat16', device: 'cuda', tokens: 8192, secondCopy: false, ...options }),
    );
  });
  return ways.map(([name], way) => ({
    name,
    x: each.map((estimates) => (estimates[way]?.parameters as number) / 1e9),
    y: each.map((estimates) => (estimates[way]?.totalBytes as number) / GiB),
  }));
}

/** Tokens per second of a Llama of 15 million parameters with random weights, relative to one sequence. */
async function decodingSpeed(lab: Lab): Promise<Curve> {
  const shape = {
    model_type: 'llama',
    vocab_size: 32000,
    hidden_size: 288,
    intermediate_size: 768,
    num_hidden_layers: 6,
    num_attention_heads: 6,
    num_key_value_heads: 6,
    max_position_embeddings: 256,
    tie_word_embeddings: true,
  };
  using model = initModel(shape, { seed: lab.seed });
  const rates: number[] = [];
  const bar = lab.progress?.start('decoding', batches.length);
  for (const count of batches) {
    lab.signal?.throwIfAborted();
    using sampler = new Sampler(model, { slots: count });
    const requests = Array.from({ length: count }, (_, i) => ({ prompt: [1 + i, 2, 3, 4], maxNewTokens: 64, seed: i }));
    await sampler.generate(requests);
    const seconds: number[] = [];
    for (let again = 0; again < 3; again++) {
      const started = performance.now();
      await sampler.generate(requests);
      seconds.push((performance.now() - started) / 1000);
    }
    rates.push((64 * count) / Math.min(...seconds));
    bar?.advance();
  }
  bar?.done();
  return { name: 'Llama, 15M parameters, f32', x: [...batches], y: rates.map((rate) => rate / (rates[0] as number)) };
}
