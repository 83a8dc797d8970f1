/** Matrices in 12 bits a weight: steps that read them give the same bits as steps that read the weights themselves. */
import { expect, it } from 'vitest';
import { addLora, initModel, type Model, Sampler } from '../../src/models/index.ts';
import { PackedWeights } from '../../src/models/weights/packed-weights.ts';
import { aten, empty, noGrad, ones, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, expectSame, onlyOnCuda } from './device.ts';
import { withSteps } from './steps.ts';

const PLENTY = 2 ** 60; // bytes that are free

interface Shape {
  width: number;
  words: number;
  inner: number;
  rows: readonly number[];
  /** How many of the head and two layers' gates are packed. */
  copies: number;
}
const shapes: Shape[] = [
  { width: 1024, words: 40_008, inner: 128, rows: [1, 3, 8, 9, 16, 17, 24, 32], copies: 1 },
  { width: 2048, words: 33_000, inner: 128, rows: [1, 2, 8, 11, 16], copies: 1 },
  { width: 2560, words: 32_768, inner: 9728, rows: [1, 5, 8, 9, 13, 16], copies: 3 },
  { width: 2560, words: 32_776, inner: 9608, rows: [1, 16], copies: 3 }, // whose last group of outputs is not full
  { width: 2048, words: 33_000, inner: 11_008, rows: [1, 8, 16], copies: 3 },
  { width: 1536, words: 33_000, inner: 8960, rows: [1, 8, 16], copies: 2 }, // six units a group
];

function modelOf({ width, words, inner }: Shape, family = 'qwen3'): Model {
  const model = initModel(
    {
      ...{ model_type: family, vocab_size: words, hidden_size: width, intermediate_size: inner, num_hidden_layers: 2 },
      ...{ head_dim: 64, num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 256 },
      ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false, eos_token_id: words - 1 },
    },
    { seed: 1, device, dtype: 'bfloat16' },
  );
  renew(model, 2);
  return model;
}

/** Other weights: with rows of zeros, and with single weights that are far from the others of their row. */
function renew(model: Model, from: number): void {
  scope(() =>
    noGrad(() => {
      seed(from);
      for (const [, parameter] of model.decoder.parameters()) {
        parameter.normal_(0, parameter.ndim === 1 ? 1 : 0.05);
        if (parameter.ndim === 1) continue;
        const [rows = 0, inputs = 0] = parameter.shape;
        for (const row of [0, 7, rows - 1]) parameter.select(0, row).zero_();
        const far = [0, -0, 30, -2e-9, 100, 1, -1e-20];
        for (const [i, number] of far.entries()) {
          const row = 1 + ((i * 331 + from) % (rows - 2));
          if (row !== 7)
            parameter
              .select(0, row)
              .narrow(0, (i * 97 + 63) % inputs, 1)
              .fill_(number);
        }
      }
    }),
  );
}

/** `body` with what steps of so many rows give. */
const withStepsOf = (model: Model, packed: PackedWeights | null, body: (logits: (rows: number) => Tensor) => void) =>
  withSteps(model, 32, body, { packed });

/** Tokens that a sampler writes for four prompts. */
async function write(sampler: Sampler): Promise<number[][]> {
  const requests = Array.from({ length: 4 }, (_, i) => ({
    prompt: Int32Array.from({ length: 5 + i }, (_, at) => (at * 37 + i * 11 + 2) % 999),
    ...{ maxNewTokens: 40, temperature: 1, topP: 0.9, seed: 5 + i },
  }));
  sampler.reserve({ responses: 4, length: 64 });
  return (await sampler.generate(requests)).flat().map(({ ids }) => [...ids]);
}

const packedOf = (model: Model, rows = 1) => PackedWeights.of(model.decoder, null, rows, PLENTY);
const headOf = (model: Model, packed: PackedWeights | null) => packed?.copyOf(model.decoder.headWeight) ?? null;

onlyOnCuda('weights in 12 bits', () => {
  it.each(shapes)('give steps the same bits, also after training: $width wide, $inner, $words words', (shape) => {
    using model = modelOf(shape);
    const packed = packedOf(model) as PackedWeights;
    const matrices = [model.decoder.headWeight, ...model.decoder.layers.map(({ weights }) => weights.up.weight)];
    const copies = matrices.flatMap((matrix) => packed.copyOf(matrix) ?? []);
    expect(copies).toHaveLength(shape.copies);
    expect(packed.bytes).toBe(copies.reduce((sum, { numel }) => sum + numel, 0));
    const bytes = matrices.reduce((sum, matrix) => sum + (packed.copyOf(matrix) ? 2 * (matrix?.numel ?? 0) : 0), 0);
    expect(packed.bytes / bytes).toBeLessThan(0.79);
    for (const round of [0, 1]) {
      if (round > 0) renew(model, 3);
      expect(packed.refresh()).toBe(true);
      expect(matrices.flatMap((matrix) => packed.copyOf(matrix) ?? [])).toEqual(copies); // in the same memory: graphs read it
      withStepsOf(model, null, (plain) =>
        withStepsOf(model, packed, (logits) => {
          for (const rows of shape.rows) {
            const expected = plain(rows);
            expect(expected.isfinite().all().item()).toBe(1);
            expectSame(logits(rows), expected, `${rows} rows, round ${round}`);
          }
        }),
      );
    }
    packed.dispose();
  });

  it('are read: other bits in the copy are other logits', () => {
    const shape = shapes[2] as Shape;
    using model = modelOf(shape);
    const packed = packedOf(model) as PackedWeights;
    withStepsOf(model, null, (plain) =>
      withStepsOf(model, packed, (logits) => {
        const gates = packed.copyOf(model.decoder.layers[1]?.weights.up.weight ?? null) as Tensor;
        const kept = gates.clone();
        gates.narrow(0, 200_000, 1_000_000).fill_(0x11);
        expect(logits(16).eq(plain(16)).all().item()).toBe(0);
        gates.copy_(kept);
        expectSame(logits(16), plain(16));
        const head = headOf(model, packed) as Tensor;
        head.narrow(0, 200_000, 1_000_000).fill_(0x11);
        expect(logits(1).eq(plain(1)).all().item()).toBe(0);
      }),
    );
    packed.dispose();
  });

  it('are not there where they do not fit: too many far weights, too little memory, too many rows', () => {
    const shape = shapes[0] as Shape;
    using model = modelOf(shape);
    const { decoder } = model;
    const bytes = aten<number>('attune::packed_bytes', decoder.headWeight, false, 32);
    expect(aten<number>('attune::packed_bytes', decoder.headWeight, false, 33)).toBe(0);
    expect(aten<number>('attune::packed_bytes', decoder.headWeight, true, 1)).toBe(0);
    expect(packedOf(model, 33)).toBeNull();
    expect(PackedWeights.of(decoder, null, 1, 4 * bytes - 4)).toBeNull();
    const fitting = PackedWeights.of(decoder, null, 1, 4 * bytes) as PackedWeights;
    expect(fitting.bytes).toBe(bytes);
    noGrad(() => scope(() => decoder.headWeight.select(0, 5).narrow(0, 0, 300).fill_(1e-9))); // of 1,024, in all warps' parts
    expect(fitting.refresh()).toBe(false);
    expect(headOf(model, fitting)).toBeNull();
    expect(fitting.refresh()).toBe(true);
    expect(fitting.bytes).toBe(0);
    fitting.dispose();
    expect(packedOf(model)?.bytes).toBe(0);
  });

  it('are not there for matrices that are trained, nor for models without native steps', () => {
    using model = modelOf(shapes[0] as Shape);
    model.decoder.requiresGrad_();
    expect(packedOf(model)).toBeNull();
    using other = modelOf(shapes[0] as Shape, 'olmo2');
    expect(aten<number>('attune::packed_bytes', other.decoder.headWeight, false, 1)).toBeGreaterThan(0);
    expect(packedOf(other)).toBeNull();
  });

  it('are refused with a message where there is no right room for them', () => {
    using model = modelOf(shapes[0] as Shape);
    const { headWeight } = model.decoder;
    const bytes = aten<number>('attune::packed_bytes', headWeight, false, 1);
    scope(() => {
      const room = empty([bytes + 16], { dtype: 'uint8', device });
      for (const from of [1, 4, 8])
        expect(() => aten('attune::pack', headWeight, false, room.narrow(0, from, bytes))).toThrow(
          /at a multiple of 16/,
        );
      expect(() => aten('attune::pack', headWeight, false, room)).toThrow(/expected room for \d+ bytes/);
      expect(() => aten('attune::pack', ones([8, 64], { device }), false, room)).toThrow(/no kernel reads this matrix/);
      const none = empty([0, 2560], { dtype: 'bfloat16', device });
      expect(aten<number>('attune::packed_bytes', none, true, 1)).toBe(0);
      expect(() => aten('attune::pack', none, true, room)).toThrow(/no kernel reads this matrix/);
      expect(aten<number>('attune::packed_bytes', empty([19_456, 2560], { dtype: 'bfloat16', device }), true, -3)).toBe(
        0,
      );
      expect(ones([2], { device }).sum().item()).toBe(2); // the device goes on
    });
  });

  it.each(shapes.slice(1, 3))('write the tokens of the weights as they are: $width wide', async (shape) => {
    using model = modelOf(shape);
    using held = new Sampler(model);
    const before = await write(held);
    renew(model, 9);
    const after = await write(held);
    using fresh = new Sampler(model);
    expect(after).toEqual(await write(fresh));
    expect(after).not.toEqual(before);
    // a weight that can no longer be packed: what was recorded with the copy is not used
    noGrad(() => scope(() => model.decoder.headWeight.select(0, 5).fill_(1e-9).narrow(0, 0, 500).fill_(30)));
    const last = await write(held);
    using freshest = new Sampler(model);
    expect(last).toEqual(await write(freshest));
  });

  it('follow an adapter that comes back after the base has read a prompt', async () => {
    using model = modelOf(shapes[2] as Shape);
    const { name } = addLora(model, { r: 4 });
    const adapters = model.adapters as NonNullable<Model['adapters']>;
    const change = () =>
      noGrad(() => {
        for (const [name, parameter] of adapters.parameters()) if (name.includes('lora_B')) parameter.normal_(0, 0.05);
      });
    change();
    using held = new Sampler(model);
    const before = await write(held);
    adapters.activate(null);
    await held.generate([{ prompt: [1, 2, 3], maxNewTokens: 1 }]);
    adapters.activate(name);
    using fresh = new Sampler(model);
    expect(await write(held)).toEqual(before);
    change();
    const after = await write(held);
    expect(after).toEqual(await write(fresh));
    expect(after).not.toEqual(before);
  });
});

it('have no use where steps are not on CUDA', () => {
  using model = initModel(
    {
      model_type: 'qwen3',
      vocab_size: 40,
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      head_dim: 16,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      max_position_embeddings: 64,
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
      eos_token_id: 1,
    },
    { seed: 1, device: 'cpu', dtype: 'bfloat16' },
  );
  expect(PackedWeights.of(model.decoder, null, 1, PLENTY)).toBeNull();
  expect(aten<number>('attune::packed_bytes', model.decoder.headWeight, false, 1)).toBe(0);
});
