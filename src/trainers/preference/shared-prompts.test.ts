/** A prompt shared by several responses goes through the model once, and every number stays the same. */
import { describe, expect, it } from 'vitest';
import { preferenceLoss } from '../../algorithms/index.ts';
import { type Batch, packBatch } from '../../data/index.ts';
import { packShared, sequencePlaces } from '../../models/decoder/batch.ts';
import {
  type PromptedResponse,
  packedTokens,
  packResponses,
  responseBatches,
  responseLogprobs,
} from '../../models/decoder/responses.ts';
import { headOutputs, initModel, type Model, packSequences, tokenLogprobs } from '../../models/index.ts';
import { type DType, noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { evaluateBatches } from '../batches/batch-task.ts';
import { type Objective, outcomeObjective, preferenceObjective, processObjective } from '../batches/objectives.ts';
import { Critic } from '../policy/critic.ts';
import { type PreferenceExample, PreferenceObjective } from './objective.ts';

const vocabulary = 60;
const base = {
  vocab_size: vocabulary,
  hidden_size: 24,
  intermediate_size: 40,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-6,
  initializer_range: 0.2,
};
const families: Record<string, Record<string, unknown>> = {
  'rotary, grouped heads': { model_type: 'llama', ...base },
  'normed queries, tied': { model_type: 'qwen3', ...base, head_dim: 8, tie_word_embeddings: true },
  'a sliding window': { model_type: 'mistral', ...base, sliding_window: 7 },
  'learned positions': { model_type: 'gpt2', vocab_size: 60, n_embd: 24, n_layer: 2, n_head: 2, n_positions: 128 },
  alibi: { model_type: 'bloom', vocab_size: 60, hidden_size: 24, n_layer: 2, n_head: 4 },
};
const llama = () => initModel(families['rotary, grouped heads'] as object as Record<string, unknown>, { seed: 3 });

const tokens = (length: number, salt: number) =>
  Array.from({ length }, (_, i) => (i * 7 + i * i * salt + salt * 11) % 60);

function response(prompt: number[], length: number, salt: number): PromptedResponse {
  return { ids: Int32Array.from([...prompt, ...tokens(length, salt)]), promptLength: prompt.length };
}

/** Two groups, one prompt too short to share, one without a partner, one response without tokens. */
const [long, other, short] = [tokens(23, 1), tokens(9, 2), tokens(4, 3)];
const responses = [
  ...[5, 1, 12].map((length, i) => response(long, length, i)),
  response(tokens(15, 4), 6, 9),
  ...[3, 8].map((length, i) => response(other, length, i)),
  ...[3, 4].map((length, i) => response(short, length, i)),
  response(long, 0, 5),
];

/** Runs with sharing off: every sequence has its own copy of the prompt. */
function apart<T>(model: Model, body: () => T): T {
  Object.defineProperty(model.decoder, 'longestShared', { value: 0, configurable: true });
  try {
    return body();
  } finally {
    Reflect.deleteProperty(model.decoder, 'longestShared');
  }
}

function gradients(model: Model, body: () => void): number[][] {
  model.decoder.requiresGrad_();
  const parameters = [...model.trainable()].map(([, parameter]) => parameter);
  for (const parameter of parameters) parameter.grad = null;
  scope(body);
  const found = parameters.map((parameter) => parameter.grad?.numbers() ?? []);
  for (const parameter of parameters) parameter.grad = null;
  return found;
}

const norm = (values: readonly number[]) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

/** ‖a − b‖ / ‖b‖ over all parameters. */
function distance(a: number[][], b: number[][]): number {
  const [left, right] = [a.flat(), b.flat()];
  expect(norm(right)).toBeGreaterThan(1e-3);
  expect(left.length).toBe(right.length);
  return norm(left.map((value, i) => value - (right[i] as number))) / norm(right);
}

describe.each(Object.keys(families))('%s', (family) => {
  it('has the log-probs and the gradient of prompts that are not shared', () => {
    using model = initModel(families[family] as Record<string, unknown>, { seed: 3 });
    const step = (checkpointing = false) =>
      gradients(model, () => {
        const packed = packResponses(responses, model.decoder);
        model.decoder.backward(
          packed.batch,
          (hidden) => {
            const { logp, entropy } = tokenLogprobs(model.decoder, hidden, packed.batch, packed.tokens, 0.8);
            const weights = tensor(Float32Array.from(packed.tokens, (_, i) => Math.sin(i + 1)));
            return logp.add(entropy.mul(0.3)).mul(weights).sum();
          },
          { checkpointing },
        );
      });
    const expected = apart(model, step);
    expect(distance(step(), expected)).toBeLessThan(1e-6);
    expect(distance(step(true), expected)).toBeLessThan(1e-6);
    const [ours, theirs] = [
      responseLogprobs(model.decoder, responses),
      apart(model, () => responseLogprobs(model.decoder, responses)),
    ];
    for (const [i, value] of theirs.entries())
      expect(Math.abs((ours[i] as number) - value)).toBeLessThan(1e-6 * (1 + Math.abs(value)));
  });
});

describe('a packed batch', () => {
  it('holds a shared prompt once', () => {
    scope(() => {
      const prompt = Array.from({ length: 9 }, (_, i) => i + 1);
      const batch = packShared([response(prompt, 2, 0), response(tokens(3, 1), 1, 1), response(prompt, 1, 2)]);
      // the two that share a prompt are adjacent
      expect(batch.starts).toEqual([0, 9, 11, 12, 16]);
      expect(batch.prefixes).toEqual([-1, 0, 0, -1]);
      expect(batch.longest).toBe(11);
      expect(batch.positions.numbers()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, 0, 1, 2, 3]);
      expect(batch.ids.numbers().slice(0, 9)).toEqual(prompt);
      expect([...(batch.rows as Int32Array)]).toEqual([
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 11,
      ]);
    });
  });

  it('says where sequences and families are', () => {
    scope(() => {
      const { sequences, families, prefixTokens } = sequencePlaces([0, 8, 11, 13, 17, 37], 'cpu', [-1, 0, 0, -1, -1]);
      expect(sequences.numbers()).toEqual(
        [
          [17, 20, 17, 0],
          [8, 3, 0, 8],
          [11, 2, 0, 8],
          [0, 8, 0, -1],
          [13, 4, 13, 0],
        ].flat(),
      );
      expect(families?.numbers()).toEqual([0, 8, 13]);
      expect(prefixTokens).toBe(8);
      expect(sequencePlaces([0, 8, 11], 'cpu')).toMatchObject({ families: null, prefixTokens: 0 });
      expect(() => sequencePlaces([0, 8, 11, 13, 17], 'cpu', [-1, 0, -1, 0])).toThrow(/does not lie together/);
    });
  });

  it('leaves longer sequences apart, and they count as such', () => {
    scope(() => {
      const prompt = tokens(12, 1);
      const some = [response(prompt, 3, 0), response(prompt, 9, 1), response(prompt, 4, 2)];
      const sharing = { device: 'cpu', longestShared: 20 };
      const batch = packShared(some, sharing);
      expect(batch.prefixes).toEqual([-1, 0, 0, -1]);
      expect(batch.starts).toEqual([0, 12, 15, 19, 40]);
      expect(packedTokens(some, sharing)).toBe(40);
      const parts = responseBatches(some, { tokens: 30 }, sharing);
      expect(parts.map((part) => part.length)).toEqual([1, 1, 1]);
      expect(packedTokens(some, { device: 'cpu', longestShared: 0 })).toBe(15 + 21 + 16);
    });
  });

  it('without anything to share is the plain one', () => {
    scope(() => {
      const alone = [response(tokens(12, 1), 3, 0), response(tokens(12, 2), 3, 0), response(tokens(5, 3), 3, 0)];
      const [shared, plain] = [packShared(alone), packSequences(alone.map(({ ids }) => ids))];
      expect(shared.prefixes).toBeUndefined();
      expect(shared.starts).toEqual(plain.starts);
      expect(shared.ids.numbers()).toEqual(plain.ids.numbers());
    });
  });

  it('is shared only where attention knows how and no angle depends on the length', () => {
    const scaled = { ...families['rotary, grouped heads'], rope_scaling: { rope_type: 'dynamic', factor: 2 } };
    using dynamic = initModel(scaled, { seed: 1 });
    const alibi = (dtype: DType) => initModel(families.alibi as Record<string, unknown>, { seed: 1, dtype });
    using half = alibi('bfloat16');
    using double = alibi('float64');
    using plain = llama();
    const any = Number.POSITIVE_INFINITY;
    expect([dynamic, double].map(({ decoder }) => decoder.longestShared)).toEqual([0, 0]);
    expect([half, plain].map(({ decoder }) => decoder.longestShared)).toEqual([any, any]);
    Object.assign(plain.decoder.spec.attention, { dropout: 0.1 });
    expect(plain.decoder.longestShared).toBe(any);
    plain.train();
    expect(plain.decoder.longestShared).toBe(0);
  });
});

describe('micro-batches', () => {
  const group = (prompt: number, count: number) =>
    Array.from({ length: count }, (_, i) => response(tokens(prompt, prompt), 4 + i, i));
  const cut = (given: PromptedResponse[], limits: { tokens?: number; examples?: number }) => {
    using model = llama();
    const parts = responseBatches(given, limits, model.decoder);
    expect(parts.flat()).toEqual(given);
    for (const part of parts) {
      expect(part.length).toBeLessThanOrEqual(limits.examples ?? Number.POSITIVE_INFINITY);
      if (part.length > 1) expect(packedTokens(part, model.decoder)).toBeLessThanOrEqual(limits.tokens ?? 1e9);
    }
    return parts.map(({ length }) => length);
  };

  it('count a shared prompt once and keep a group together where it fits', () => {
    const groups = [...group(20, 4), ...group(30, 4)]; // 20 + 22 = 42 and 30 + 22 = 52 tokens
    expect(cut(groups, { tokens: 94 })).toEqual([8]);
    expect(cut(groups, { tokens: 93 })).toEqual([4, 4]);
    expect(cut(groups, { tokens: 50 })).toEqual([4, 3, 1]);
    expect(cut(groups, { tokens: 25 })).toEqual([1, 1, 1, 1, 1, 1, 1, 1]);
    expect(cut(groups, { examples: 6 })).toEqual([4, 4]);
    expect(cut(groups, { examples: 3 })).toEqual([3, 3, 2]);
    expect(cut([], { tokens: 10 })).toEqual([]);
  });
});

it('every cut into micro-batches has the same gradient', () => {
  using model = llama();
  const weightOf = new Map(responses.map((each, i) => [each, i + 1]));
  const step = (limits: { tokens?: number; examples?: number }) =>
    gradients(model, () => {
      for (const part of responseBatches(responses, limits, model.decoder)) {
        const packed = packResponses(part, model.decoder);
        const weights = part.flatMap((each, i) =>
          Array.from({ length: packed.lengths[i] as number }, (_, t) =>
            Math.sin(7 * (weightOf.get(each) as number) + t),
          ),
        );
        model.decoder.backward(packed.batch, (hidden) => {
          const { logp } = tokenLogprobs(model.decoder, hidden, packed.batch, packed.tokens);
          return logp.mul(tensor(Float32Array.from(weights))).sum();
        });
      }
    });
  const whole = step({});
  for (const limits of [{ tokens: 60 }, { tokens: 45 }, { tokens: 30 }, { examples: 2 }, { examples: 1 }])
    expect(distance(step(limits), whole), JSON.stringify(limits)).toBeLessThan(2e-6);
  expect(
    distance(
      apart(model, () => step({ tokens: 40 })),
      whole,
    ),
  ).toBeLessThan(2e-6);
});

const mean = (values: Tensor) => values.mean();

it('a critic reads the same values', () => {
  using model = llama();
  const critic = new Critic(model, null, 5);
  const read = () =>
    scope(() =>
      noGrad(() => {
        const packed = packResponses(responses, model.decoder);
        return critic.values(packed, model.decoder.forward(packed.batch)).numbers();
      }),
    );
  const [ours, theirs] = [read(), apart(model, read)];
  expect(norm(theirs)).toBeGreaterThan(0.1);
  expect(distance([ours], [theirs])).toBeLessThan(1e-6);
  const step = () =>
    gradients(model, () => {
      const packed = packResponses(responses, model.decoder);
      mean(critic.values(packed, model.decoder.forward(packed.batch)).square()).backward();
    });
  expect(distance(step(), apart(model, step))).toBeLessThan(1e-6);
  critic.dispose();
});

it('a direct-alignment step has the same gradient, loss and metrics', async () => {
  using model = llama();
  const pairs: PreferenceExample[] = [long, other, short].map((prompt, i) => [
    { ...response(prompt, 6 + i, 2 * i), chosen: true, lpRef: -3 - i },
    { ...response(prompt, 4, 2 * i + 1), chosen: false, lpRef: -5 },
  ]);
  const algorithm = preferenceLoss('dpo');
  const reference = { logprobs: () => [] } as never;
  const options = { ...algorithm.defaults, beta: 0.5 } as never;
  const objective = new PreferenceObjective({
    model,
    algorithm,
    options,
    reference,
    limits: { tokens: 60 },
    maxLength: 99,
  });
  const totals = await objective.totals(pairs);
  const step = () => gradients(model, () => void objective.backward(pairs, totals));
  expect(distance(step(), apart(model, step))).toBeLessThan(1e-6);
  const ours = await objective.evaluate(pairs);
  Object.defineProperty(model.decoder, 'longestShared', { value: 0, configurable: true });
  const theirs = await objective.evaluate(pairs);
  for (const [name, value] of Object.entries(theirs)) expect(ours[name], name).toBeCloseTo(value, 4);
});

it('a policy that is its own reference has margins of exactly 0: all pairs are ties', async () => {
  using model = llama();
  const algorithm = preferenceLoss('dpo');
  const reference = { use: <T>(body: (model: Model) => T) => body(model) } as never;
  const options = { ...algorithm.defaults, beta: 0.5 } as never;
  const limits = { examples: 2 };
  const objective = new PreferenceObjective({ model, algorithm, options, reference, limits, maxLength: 99 });
  const pairs = Array.from({ length: 8 }, (_, i) => [
    { ...response(tokens(9 + i, i), 30 + i, 2 * i), chosen: true },
    { ...response(tokens(9 + i, i), 40, 2 * i + 1), chosen: false },
  ]);
  expect(await objective.evaluate(pairs)).toMatchObject({ accuracy: 0.5, margin: 0, log_ratio: 0 });
});

describe('a reward model', () => {
  const facts = { label: true, margin: 0, group: 0, source: -1 };
  const sequence = ({ ids, promptLength }: PromptedResponse) => ({
    ids,
    promptLength,
    spans: Int32Array.of(promptLength, ids.length),
    marks: Int32Array.of(promptLength + 1, 1, ids.length - 1, -1),
  });
  const pairs = packBatch(
    [long, other, short].map((prompt, example) => ({
      ...{
        sequences: [response(prompt, 6, example), response(prompt, 4 + example, example + 7)].map(sequence),
        example,
      },
      ...facts,
    })),
  );
  const singles = packBatch(
    [0, 1, 2, 3].map((example) => ({
      ...{ sequences: [sequence(response(example === 2 ? other : long, 5 + example, example))], example },
      ...{ ...facts, label: example % 2 === 0 },
    })),
  );

  it('gives the same scores, in fewer tokens', () => {
    using model = llama();
    model.addHead('reward', 1);
    const { decoder } = model;
    const counted = { tokens: 0 };
    const forwardAt = decoder.forwardAt.bind(decoder);
    decoder.forwardAt = (batch, rows) => {
      counted.tokens += batch.ids.numel;
      return forwardAt(batch, rows);
    };
    const sequences = responses.map(({ ids, promptLength }) => ({ ids, promptLength, places: [ids.length - 1] }));
    const scores = () => headOutputs(model, sequences).map(([score]) => score as number);
    const ours = scores();
    expect(counted.tokens).toBe(packedTokens(responses, decoder));
    const theirs = apart(model, scores);
    expect(norm(theirs)).toBeGreaterThan(0.01);
    expect(distance([ours], [theirs])).toBeLessThan(1e-6);
    const whole = counted.tokens;
    headOutputs(model, sequences, { tokenBudget: 40 });
    expect(counted.tokens).toBeGreaterThan(whole + packedTokens(responses, decoder)); // groups are split
  });

  const objectives = {
    preference: (model: Model) => preferenceObjective(model, {}) as Objective<never>,
    outcome: (model: Model) => outcomeObjective(model) as Objective<never>,
    process: (model: Model) => processObjective(model) as Objective<never>,
  };

  it.each([
    ['preference', 1, pairs],
    ['outcome', 1, singles],
    ['process', 3, singles],
  ] as [keyof typeof objectives, number, Batch][])(
    '%s has the same gradient and metrics',
    async (kind, outputs, batch) => {
      using model = llama();
      model.addHead('reward', outputs);
      const objective = objectives[kind](model);
      const step = () =>
        gradients(model, () => {
          const packed =
            model.decoder.longestShared > 0
              ? packShared(
                  Array.from({ length: batch.sequences }, (_, s) => ({
                    ids: batch.ids.subarray(batch.cuSeqlens[s], batch.cuSeqlens[s + 1]),
                    promptLength: batch.promptLengths[s] as number,
                  })),
                )
              : packSequences(
                  Array.from({ length: batch.sequences }, (_, s) =>
                    batch.ids.subarray(batch.cuSeqlens[s], batch.cuSeqlens[s + 1]),
                  ),
                );
          model.decoder.backward(
            packed,
            (hidden) => objective.loss(hidden, packed, batch, objective.totals([batch])).loss,
          );
        });
      expect(distance(step(), apart(model, step))).toBeLessThan(1e-6);
      const ours = await evaluateBatches(model, objective, [batch]);
      Object.defineProperty(model.decoder, 'longestShared', { value: 0, configurable: true });
      const theirs = await evaluateBatches(model, objective, [batch]);
      for (const [name, value] of Object.entries(theirs)) expect(ours[name], name).toBeCloseTo(value, 5);
    },
  );
});
