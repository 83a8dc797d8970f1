/**
 * Prompts read by one native call against the operators one by one: the same first tokens and the same cache, to the bit; of few tokens on
 * CUDA, which the kernels of a decoding step multiply, to rounding.
 */
import { describe, expect, it } from 'vitest';
import { longestWithPrefix } from '../../src/models/decoder/attention.ts';
import { BLOCK, blocksFor, type CacheDtype, KvCache } from '../../src/models/generate/cache/cache.ts';
import { prefill } from '../../src/models/generate/decoding.ts';
import { drawnOnHost } from '../../src/models/generate/drawn-tokens.ts';
import type { PromptOfRows } from '../../src/models/generate/prompt-graph.ts';
import { PromptReader } from '../../src/models/generate/prompt-reader.ts';
import { Row } from '../../src/models/generate/row.ts';
import { type Drawn, onHost, ruleTensors, sampleNext } from '../../src/models/generate/sampling.ts';
import { addLora, type GenerationRequest, initModel, type Model, Sampler } from '../../src/models/index.ts';
import { MergedWeights } from '../../src/models/weights/merged-weights.ts';
import { Random } from '../../src/random.ts';
import { type DType, integers, noGrad, scope, type Tensor, tensor } from '../../src/tensor/index.ts';
import { device, hasCuda, onlyOnCuda } from './device.ts';

const small = {
  vocab_size: 500,
  hidden_size: 128,
  intermediate_size: 192,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-6,
};
const shapes = {
  qwen3: { ...small, model_type: 'qwen3', head_dim: 128, tie_word_embeddings: true },
  llama: { ...small, model_type: 'llama', head_dim: 64, tie_word_embeddings: false },
  // as large as a model's own, for BLAS takes other kernels then
  wide: {
    ...small,
    model_type: 'qwen3',
    head_dim: 128,
    hidden_size: 1024,
    intermediate_size: 3072,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    tie_word_embeddings: true,
    vocab_size: 40_008, // so large that the head has a kernel for few rows
  },
  // of few tokens the products are those of another file
  wider: {
    ...small,
    model_type: 'qwen3',
    head_dim: 128,
    hidden_size: 2560,
    intermediate_size: 2560,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    tie_word_embeddings: true,
  },
  // with biases
  qwen2: { ...small, model_type: 'qwen2', hidden_size: 256, tie_word_embeddings: false },
  // on CUDA only prompts within the window are read at once
  mistral: { ...small, model_type: 'mistral', head_dim: 64, sliding_window: 40, tie_word_embeddings: false },
};
const dtypes: DType[] = hasCuda ? ['bfloat16', 'float16'] : ['float32', 'bfloat16'];
const batches = [
  ...[[1], [7], [3, 9, 1], [20], [31], [5, 64, 65, 1, 70, 2]],
  ...(hasCuda ? [[128], [300], Array.from({ length: 16 }, () => 128)] : []),
];

function made(shape: object, dtype: DType): Model {
  const model = initModel(shape as Parameters<typeof initModel>[0], { seed: 1, device, dtype });
  noGrad(() => {
    for (const [, parameter] of model.decoder.parameters()) if (parameter.ndim === 1) parameter.normal_(1, 0.3); // norms and biases that do something
  });
  return model;
}

/** Prompts in the slots of their rows, some of them with several responses. */
function itemsOf(lengths: readonly number[], vocabulary: number): PromptOfRows[] {
  const random = new Random('prompts', lengths.length);
  return lengths.map((length, slot) => {
    const request: GenerationRequest = {
      prompt: Array.from({ length }, () => random.int(0, vocabulary - 1)),
      maxNewTokens: 4,
      temperature: slot % 3 === 1 ? 0 : 0.9,
      topP: slot % 2 === 0 ? 0.9 : 1,
      topK: slot % 4 === 2 ? 20 : 0,
      minP: slot % 5 === 3 ? 0.02 : 0,
      seed: 7 * slot,
    };
    const rows = Array.from({ length: slot % 3 === 2 ? 3 : 1 }, (_, sample) => new Row(request, sample, undefined));
    for (const row of rows) row.slot = slot;
    return { prompt: request.prompt, slot, from: 0, rows };
  });
}

/** Its blocks are not in the order of the slots. */
function cacheFor({ decoder }: Model, items: readonly PromptOfRows[], cacheDtype: CacheDtype): KvCache {
  const lengths = items.map(({ prompt }) => prompt.length);
  const blocks = lengths.reduce((sum, length) => sum + blocksFor(length), 0);
  const size = { slots: items.length, length: Math.max(...lengths, BLOCK), blocks };
  const cache = new KvCache(decoder.spec, size, { dtype: decoder.dtype, device, cacheDtype });
  let next = blocks;
  for (const [slot, length] of lengths.entries())
    cache.setTable(
      slot,
      Array.from({ length: blocksFor(length) }, () => --next),
    );
  cache.upload();
  return cache;
}

/** What is drawn, and of each row the log-probs of all tokens at its temperature. */
function oneByOne({ decoder }: Model, cache: KvCache, items: readonly PromptOfRows[]): Drawn & { logp: Float32Array } {
  return scope(() =>
    noGrad(() => {
      const rows = items.flatMap((item) => item.rows);
      const which = items.flatMap((item, i) => item.rows.map(() => i));
      const logits = decoder.logits(prefill(decoder, cache, items)).indexSelect(0, integers(which, { device }));
      const temperatures = rows.map(({ rule }) => [rule.temperature > 0 ? rule.temperature : 1]);
      const logp = logits.to('float32').div(tensor(temperatures, { device })).logSoftmax(-1).data() as Float32Array;
      const rule = ruleTensors(
        rows.map((row) => row.rule),
        rows.map((row) => row.seed),
        device,
      );
      const counters = integers(
        rows.map((row) => row.position + 1),
        { device },
      );
      return { ...onHost(sampleNext(logits.to('float32'), rule, counters)), logp };
    }),
  );
}

const contents = (cache: KvCache) =>
  [...cache.keys, ...cache.values, ...cache.keyScales, ...cache.valueScales].map((each) =>
    Buffer.from(each.data().buffer),
  );

/** The numbers that a cache holds. */
function numbersIn(cache: KvCache): Float32Array[] {
  return scope(() =>
    [
      [cache.keys, cache.keyScales],
      [cache.values, cache.valueScales],
    ].flatMap(([all = [], scales = []]) =>
      all.map((each, layer) => {
        const scale = scales[layer]?.transpose(1, 2).unsqueeze(-1); // [blocks, heads, positions]
        const wide = each.to('float32');
        return (scale ? wide.mul(scale) : wide).data() as Float32Array;
      }),
    ),
  );
}

/** The difference beside the numbers themselves, as root mean squares. */
function distance(found: Float32Array, expected: Float32Array): number {
  const squares = (of: (x: number, i: number) => number) => found.reduce((sum, x, i) => sum + of(x, i) ** 2, 0);
  return Math.sqrt(squares((x, i) => x - (expected[i] as number)) / squares((_, i) => expected[i] as number));
}

/** Whether the kernels of a decoding step may multiply so many tokens: of more than 32 those of larger models in bf16. */
function areFew({ decoder: { spec, dtype } }: Model, tokens: number): boolean {
  if (!hasCuda || tokens <= 32) return hasCuda;
  return tokens <= 256 && dtype === 'bfloat16' && spec.hiddenSize >= 1024;
}

/** Same results to rounding: by the cache, and by the log-probs of what was drawn; an argmax is as good as the largest one. */
function expectNear(
  items: readonly PromptOfRows[],
  { found, drawn }: { found: KvCache; drawn: Drawn },
  { expected, oneByOne }: { expected: KvCache; oneByOne: Drawn & { logp: Float32Array } },
): void {
  const theirs = numbersIn(expected);
  for (const [i, numbers] of numbersIn(found).entries())
    expect(distance(numbers, theirs[i] as Float32Array), `part ${i} of the cache`).toBeLessThan(0.02);
  const rows = items.flatMap((item) => item.rows);
  const vocabulary = oneByOne.logp.length / rows.length;
  for (const [i, { rule }] of rows.entries()) {
    const logp = oneByOne.logp.subarray(i * vocabulary, (i + 1) * vocabulary);
    const own = logp[drawn.ids[i] as number] as number;
    if (rule.temperature === 0) expect(own, `row ${i}`).toBeGreaterThan(Math.max(...logp) - 0.1);
    else expect(drawn.logprobs[i], `row ${i}`).toSatisfy((x: number) => Math.abs(x - own) < 0.1);
  }
}

/** Whether the device's kernels read prompts of such a model; the CPU reads all. */
function takes({ decoder: { spec, dtype } }: Model, longest: number): boolean {
  const { attention } = spec;
  if (!hasCuda) return true;
  const windows = attention.windows.map(() => null);
  return (
    longestWithPrefix({ ...attention, windows, hasBias: false }, device, dtype) > 0 &&
    attention.windows.every((window) => window === null || window >= longest)
  );
}

const names = (Object.keys(shapes) as (keyof typeof shapes)[]).filter((name) => hasCuda || !name.startsWith('wide'));

describe.each(names)('prompts of %s, read at once', (name) => {
  for (const dtype of dtypes)
    for (const cacheDtype of ['model', 'int8'] as const)
      it(`are what the operators make of them, in ${dtype} with a cache in ${cacheDtype}`, () => {
        using model = made(shapes[name], dtype);
        for (const lengths of batches) {
          const items = itemsOf(lengths, small.vocab_size);
          const [expected, found] = [cacheFor(model, items, cacheDtype), cacheFor(model, items, cacheDtype)];
          const reader = new PromptReader(model.decoder, found);
          const { logp, ...drawn } = oneByOne(model, expected, items);
          for (let again = 0; again < 2; again++) {
            const read = scope(() => reader.read(items));
            expect(read !== null, `${lengths}`).toBe(takes(model, Math.max(...lengths)));
            if (read === null) continue;
            const now = drawnOnHost(read);
            read.dispose();
            expectNear(items, { found, drawn: now }, { expected, oneByOne: { ...drawn, logp } });
            const tokens = lengths.reduce((sum, length) => sum + length);
            if (areFew(model, tokens)) continue;
            expect(now).toEqual(drawn);
            expect(contents(found)).toEqual(contents(expected));
          }
          for (const own of [reader, expected, found]) own.dispose();
        }
      });
});

onlyOnCuda('prompts of a model with an adapter', () => {
  it('are read with the merged matrices, and not at once without them', () => {
    using model = made(shapes.qwen3, 'bfloat16');
    const { decoder } = model;
    addLora(model, { r: 4 });
    noGrad(() => {
      for (const [, parameter] of model.adapters?.parameters() ?? []) parameter.normal_(0, 0.1);
    });
    const merged = MergedWeights.of(decoder, () => 0, 2 ** 30) as MergedWeights;
    merged.refresh();
    const items = itemsOf([5, 64, 65, 1, 70, 2], small.vocab_size);
    const [expected, found] = [cacheFor(model, items, 'model'), cacheFor(model, items, 'model')];
    const reader = new PromptReader(decoder, found);
    expect(reader.read(items)).toBeNull();
    const read = scope(() => reader.read(items, merged));
    expect(read).not.toBeNull();
    expect(reader.read(items)).toBeNull();
    // the same matrices as a bare model's own
    const projections = [...decoder.projections()];
    const copies = projections.map((each) => merged.weightOf(each));
    model.adapters?.activate(null);
    noGrad(() => {
      for (const [i, { weight }] of projections.entries()) if (copies[i]) weight?.copy_(copies[i]);
    });
    expectNear(
      items,
      { found, drawn: drawnOnHost(read as Tensor) },
      { expected, oneByOne: oneByOne(model, expected, items) },
    );
    for (const own of [read as Tensor, reader, merged, expected, found]) own.dispose();
  });
});

it('refuses what native code cannot read', async () => {
  using model = made(shapes.qwen3, dtypes[0] as DType);
  const items = itemsOf([3, 4], small.vocab_size);
  const cache = cacheFor(model, items, 'model');
  const reader = new PromptReader(model.decoder, cache);
  const [first, second] = items as [PromptOfRows, PromptOfRows];
  expect(reader.read([{ ...first, prompt: [] }, second])).toBeNull();
  expect(reader.read([{ ...first, prompt: [2 ** 32 + 1] }, second])).toBeNull();
  model.decoder.residence = { isWhole: false, makeWhole: async () => true }; // weights of which a part is elsewhere
  expect(reader.read([first, second])).toBeNull();
  model.decoder.residence = null;
  if (takes(model, 4))
    expect(() => reader.read([{ ...first, prompt: [500] }, second])).toThrow('outside the embedding');
  for (const own of [reader, cache]) own.dispose();
  using sampler = new Sampler(model, { slots: 2, maxLength: 32 });
  // rows whose logits are wanted are read one by one: the same tokens
  const request = { prompt: [5, 6, 7], maxNewTokens: 1, temperature: 1, seed: 3 };
  const [plain] = await sampler.generate([request]);
  const [seen] = await sampler.generate([{ ...request, topLogprobs: 1 }]);
  const digits = hasCuda ? 1 : 6;
  expect(plain?.[0]?.ids).toEqual(seen?.[0]?.ids);
  expect(plain?.[0]?.logprobs[0]).toBeCloseTo(seen?.[0]?.logprobs[0] as number, digits);
});
