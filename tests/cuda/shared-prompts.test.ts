/**
 * A prompt that several replies share goes through the model once: log-probs and gradients are as near to those of float32 on the CPU as
 * they are with a prompt for every reply.
 */
import { describe, expect, it } from 'vitest';
import {
  type PromptedResponse,
  packedTokens,
  packResponses,
  responseLogprobs,
} from '../../src/models/decoder/responses.ts';
import {
  addLora,
  headOutputs,
  initModel,
  type LoadOptions,
  type Model,
  tokenLogprobs,
} from '../../src/models/index.ts';
import { liveTensors, noGrad, scope, type Tensor, tensor } from '../../src/tensor/index.ts';
import { device } from './device.ts';

const base = {
  vocab_size: 90,
  hidden_size: 96,
  intermediate_size: 128,
  num_hidden_layers: 2,
  max_position_embeddings: 1024,
  rms_norm_eps: 1e-6,
  initializer_range: 0.15,
};
const grouped = { model_type: 'qwen3', ...base, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 128 };
const plain = { model_type: 'llama', ...base, num_attention_heads: 2, num_key_value_heads: 2, head_dim: 64 };

const tokens = (length: number, salt: number) =>
  Array.from({ length }, (_, i) => (i * 7 + i * i * salt + salt * 11) % 90);
const replies = (prompt: number, lengths: readonly number[], salt: number): PromptedResponse[] =>
  lengths.map((length, i) => ({
    ids: Int32Array.from([...tokens(prompt, salt), ...tokens(length, salt + 7 * i + 1)]),
    promptLength: prompt,
  }));
/** Groups that are whole, one reply alone, replies of one token and without any, prompts too short to share. */
const responses = [
  ...replies(129, [70, 1, 33, 64], 1),
  ...replies(40, [20], 2),
  ...replies(66, [1, 1, 0], 3),
  ...replies(5, [12, 3], 4),
  ...replies(1, [9, 8], 5),
];

interface Case {
  config: Record<string, unknown>;
  load?: LoadOptions;
  lora?: boolean;
  checkpointing?: boolean;
}
const cases: [string, Case][] = [
  ['grouped heads of 128', { config: grouped }],
  ['heads of 64', { config: plain }],
  ['checkpointing', { config: grouped, checkpointing: true }],
  ['LoRA', { config: grouped, lora: true }],
  ['LoRA on int8', { config: grouped, lora: true, load: { quantType: 'int8' } }],
  ['LoRA on int4 with checkpointing', { config: plain, lora: true, checkpointing: true, load: { quantType: 'int4' } }],
];

function modelOf({ config, load, lora }: Case, place: LoadOptions): Model {
  const model = initModel(config, { seed: 3, ...load, ...place });
  if (lora) {
    addLora(model, { r: 4, alpha: 8, targetModules: ['q_proj', 'k_proj', 'v_proj', 'down_proj'] });
    // B begins at zero, and A would have no gradient
    const waves = (count: number) => Float32Array.from({ length: count }, (_, i) => 0.1 * Math.sin(i));
    noGrad(() => {
      for (const [, parameter] of model.trainable())
        scope(() => parameter.copy_(tensor(waves(parameter.numel), { shape: [...parameter.shape] })));
    });
  } else model.decoder.requiresGrad_();
  return model;
}

/** The gradient of all parameters, one after another. */
function gradient(model: Model, checkpointing: boolean): number[] {
  const parameters = [...model.trainable()].map(([, parameter]) => parameter);
  for (const parameter of parameters) parameter.grad = null;
  scope(() => {
    const { decoder } = model;
    const packed = packResponses(responses, decoder);
    const loss = (hidden: Tensor) => {
      const { logp, entropy } = tokenLogprobs(decoder, hidden, packed.batch, packed.tokens, 0.8);
      const weights = tensor(
        Float32Array.from(packed.tokens, (_, i) => Math.sin(i + 1)),
        { device: logp.device },
      );
      return logp.add(entropy.mul(0.3)).mul(weights).sum();
    };
    decoder.backward(packed.batch, loss, { checkpointing });
  });
  const found = scope(() => parameters.flatMap((parameter) => parameter.grad?.numbers() ?? []));
  for (const parameter of parameters) parameter.grad = null;
  return found;
}

const norm = (values: readonly number[]) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

/** ‖a − b‖ / ‖b‖ */
function distance(a: readonly number[], b: readonly number[]): number {
  expect(a.length).toBe(b.length);
  expect(norm(b)).toBeGreaterThan(1e-3);
  return norm(a.map((value, i) => value - (b[i] as number))) / norm(b);
}

function apart<T>(model: Model, body: () => T): T {
  Object.defineProperty(model.decoder, 'longestShared', { value: 0, configurable: true });
  try {
    return body();
  } finally {
    Reflect.deleteProperty(model.decoder, 'longestShared');
  }
}

describe.each(cases)(`shared prompts on ${device} in bfloat16: %s`, (_, given) => {
  it('are as exact as prompts of their own', () => {
    using wide = modelOf(given, { device: 'cpu', dtype: 'float32' });
    using model = modelOf(given, { device, dtype: 'bfloat16' });
    noGrad(() => {
      const rounded = new Map(model.decoder.tensors());
      for (const [name, weight] of wide.decoder.tensors()) weight.copy_(rounded.get(name) as Tensor);
    });
    const { decoder } = model;
    expect(decoder.longestShared).toBeGreaterThan(0);
    expect(packedTokens(responses, decoder)).toBe(
      apart(model, () => packedTokens(responses, decoder)) - 3 * 129 - 2 * 66,
    );
    const checkpointing = given.checkpointing ?? false;
    const exact = apart(wide, () => gradient(wide, checkpointing));
    const [ours, theirs] = [gradient(model, checkpointing), apart(model, () => gradient(model, checkpointing))];
    const [error, usual] = [distance(ours, exact), distance(theirs, exact)];
    expect(usual).toBeLessThan(0.1);
    expect(error).toBeLessThan(1.25 * usual);
    expect(gradient(model, checkpointing)).toEqual(ours);
    const sums = apart(wide, () => responseLogprobs(wide.decoder, responses));
    const shared = responseLogprobs(decoder, responses);
    const unshared = apart(model, () => responseLogprobs(decoder, responses));
    expect(distance(shared, sums)).toBeLessThan(2 * distance(unshared, sums) + 1e-3);
  });

  it('leave no tensors behind', () => {
    using model = modelOf(given, { device, dtype: 'bfloat16' });
    const step = () => gradient(model, given.checkpointing ?? false);
    step();
    const before = liveTensors();
    step();
    responseLogprobs(model.decoder, responses);
    expect(liveTensors()).toBe(before);
  });
});

it('a reward model scores as exactly with shared prompts', () => {
  using wide = initModel(grouped, { seed: 3, device: 'cpu', dtype: 'float32' });
  using model = initModel(grouped, { seed: 3, device, dtype: 'bfloat16' });
  for (const each of [wide, model]) each.addHead('reward', 1);
  noGrad(() => {
    const rounded = new Map(model.decoder.tensors());
    for (const [name, weight] of wide.decoder.tensors()) weight.copy_(rounded.get(name) as Tensor);
    wide.head?.weight.copy_(model.head?.weight as Tensor);
  });
  const sequences = responses.map(({ ids, promptLength }) => ({ ids, promptLength, places: [ids.length - 1, 0] }));
  const scores = (of: Model) => headOutputs(of, sequences, { tokenBudget: 400 }).flatMap((each) => [...each]);
  const exact = apart(wide, () => scores(wide));
  const [error, usual] = [
    distance(scores(model), exact),
    distance(
      apart(model, () => scores(model)),
      exact,
    ),
  ];
  expect(usual).toBeLessThan(0.05);
  expect(error).toBeLessThan(1.25 * usual);
});
