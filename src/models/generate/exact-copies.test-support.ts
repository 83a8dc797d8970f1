/** Small models and what they write, with copies of their matrices and without. */
import { isDeepStrictEqual } from 'node:util';
import { noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { type Model, Sampler } from '../index.ts';
import { KvCache } from './cache/cache.ts';
import type { DecodePlan } from './plan.ts';
import { filled, SHAPE } from './small-model.test-support.ts';

const odd = { hidden_size: 25, intermediate_size: 37, vocab_size: 43 };
export const shapes = {
  'llama, tied': { ...SHAPE, model_type: 'llama', tie_word_embeddings: true },
  'llama, odd sizes': { ...SHAPE, ...odd, model_type: 'llama' },
  'qwen2 with biases': { ...SHAPE, model_type: 'qwen2', hidden_size: 72, intermediate_size: 140, vocab_size: 601 },
  qwen3: { ...SHAPE, model_type: 'qwen3', hidden_size: 64, intermediate_size: 96 },
  mistral: { ...SHAPE, model_type: 'mistral', sliding_window: 3, hidden_size: 40 },
  'gpt2, by the general path': {
    model_type: 'gpt2',
    vocab_size: 40,
    n_embd: 24,
    n_layer: 2,
    n_head: 4,
    n_positions: 64,
  },
};

/** Inputs of one chunk and more that are not whole lines of 32, and outputs that are not whole blocks of 16. */
export const sizesOfAll = [
  { hidden_size: 8, intermediate_size: 24, vocab_size: 33 },
  { hidden_size: 40, intermediate_size: 56, vocab_size: 47 },
  { hidden_size: 264, intermediate_size: 328, vocab_size: 161 },
  { hidden_size: 1032, intermediate_size: 1048, vocab_size: 16 },
];

/** Rounds all weights to bf16. */
export function round(model: Model): void {
  noGrad(() => {
    for (const [, weight] of model.decoder.parameters()) scope(() => void weight.copy_(weight.to('bfloat16')));
  });
}

export function exact(config: Record<string, unknown>): Model {
  const model = filled(config);
  round(model);
  return model;
}

/** Responses of this many rows, a step at a time; rows end one after the other. */
export async function written(sampler: Sampler, rows: number): Promise<unknown> {
  const submitted = Array.from({ length: rows }, (_, seed) =>
    sampler.submit({ prompt: [1 + (seed % 7), 2, 3], maxNewTokens: 26 + (seed % 3), seed, temperature: 1.2 }),
  );
  return Promise.all(submitted.map((submission) => submission.responses));
}

/** The same after so many steps that all copies are made. */
async function writtenByCopies(model: Model, rows: number): Promise<unknown> {
  using sampler = new Sampler(model, { slots: rows });
  for (let steps = 0; steps < 128; steps += 25) await written(sampler, rows);
  return await written(sampler, rows);
}

/** The numbers of rows for which a model writes something else with all its copies than without: none. */
export async function rowsThatDiffer(model: Model): Promise<number[]> {
  const differing: number[] = [];
  for (const rows of [1, 2, 3, 4, 5, 8, 16, 17, 25]) {
    const [byCopies, plainly] = [await writtenByCopies(model, rows), await writtenPlainly(model, rows)];
    if (!isDeepStrictEqual(byCopies, plainly)) differing.push(rows);
  }
  return differing;
}

/** The same without copies: a trainable matrix has none. */
export async function writtenPlainly(model: Model, rows: number): Promise<unknown> {
  model.decoder.requiresGrad_();
  try {
    using sampler = new Sampler(model, { slots: rows });
    return await written(sampler, rows);
  } finally {
    model.decoder.requiresGrad_(false);
  }
}

export const cacheOf = ({ decoder: { spec, dtype } }: Model, slots = 3): KvCache => {
  const cache = new KvCache(spec, { slots, length: 16, blocks: slots + 1 }, { dtype, device: 'cpu' });
  for (let slot = 0; slot < slots; slot++) cache.setTable(slot, [slot]);
  cache.upload();
  return cache;
};

const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
export const firstLogits = (plan: DecodePlan, rows: number) =>
  scope(() =>
    noGrad(() => {
      const all = Array.from({ length: rows }, (_, i) => i);
      return plan
        .logits({ ids: whole(all.map((i) => 1 + (i % 15))), positions: whole(all.map(() => 0)), slots: whole(all) })
        .numbers();
    }),
  );

/** Writes a few numbers of very different size into a matrix. */
export function scatterFar(matrix: Tensor): void {
  const far = [0, -0, 1e-40, -3e-20, 2 ** -126, 7e3, -9];
  noGrad(() =>
    scope(() => {
      const numbers = matrix.numbers();
      for (const [i, number] of far.entries()) numbers[(i * 7919) % numbers.length] = number;
      matrix.copy_(tensor(Float32Array.from(numbers), { shape: matrix.shape }));
    }),
  );
}

export function disposable<T extends { dispose(): void }>(value: T): T & Disposable {
  return Object.assign(value, { [Symbol.dispose]: () => value.dispose() });
}
