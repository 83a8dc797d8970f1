/** LoRA on tiny random models; PEFT's own numbers are in tests/models/adapters.test.ts. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { AdamW } from '../../nn/index.ts';
import {
  aten,
  type DType,
  dropout,
  linear,
  liveTensors,
  noGrad,
  randn,
  scope,
  seed,
  type Tensor,
} from '../../tensor/index.ts';
import {
  addLora,
  initModel,
  type LoraOptions,
  loadAdapter,
  loadModelFolder,
  type Model,
  mergeAdapters,
  packSequences,
  type SampledResponse,
  Sampler,
  saveModel,
  setAdapter,
  tokenLogprobs,
  unloadAdapters,
  unmergeAdapters,
  withoutAdapters,
} from '../index.ts';
import type { ProjectionLora } from './projection.ts';

const temporary = mkdtempSync(join(tmpdir(), 'attune-lora-'));
afterAll(() => rmSync(temporary, { recursive: true }));

const ids = [
  [5, 9, 33, 12, 31, 7, 20],
  [40, 4, 11],
];
const llama = {
  model_type: 'llama',
  vocab_size: 48,
  hidden_size: 32,
  intermediate_size: 40,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  attention_bias: true,
  initializer_range: 0.2,
};

const fresh = (dtype: DType = 'float32') => initModel(llama, { seed: 3, dtype });
const logits = (model: Model) =>
  scope(() => noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids))).numbers()));
const furthest = (a: number[], b: number[]) =>
  a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);

/** As after training: changes everything trainable. */
function stir(model: Model, by = 0.1): void {
  noGrad(() => {
    for (const [, parameter] of model.trainable()) scope(() => parameter.add_(parameter.clone().normal_(0, by)));
  });
}

function loss(model: Model, hidden: Tensor): Tensor {
  const rows = model.decoder.logits(hidden.narrow(0, 0, 6));
  return aten('cross_entropy_loss', rows, packSequences([(ids[0] as number[]).slice(1)]).ids);
}

const kinds: [string, LoraOptions][] = [
  ['LoRA', {}],
  ['rsLoRA on some parts', { useRslora: true, targetModules: ['k_proj', 'up_proj', 'down_proj'] }],
  ['DoRA', { useDora: true, targetModules: 'all-linear' }],
  ['DoRA on one part, with its bias', { useDora: true, targetModules: ['k_proj'], bias: 'lora_only' }],
  ['all biases', { bias: 'all' }],
];

describe('an adapter', () => {
  it.each(kinds)('changes nothing at first, comes off exactly, and merges: %s', (_name, options) => {
    seed(1);
    using model = fresh();
    const base = logits(model);
    addLora(model, { r: 4, alpha: 8, ...options });
    expect(furthest(logits(model), base)).toBeLessThan(2e-6);
    stir(model);
    const adapted = logits(model);
    expect(furthest(adapted, base)).toBeGreaterThan(0.01);
    expect(withoutAdapters(model, () => logits(model))).toEqual(base);
    expect(logits(model)).toEqual(adapted);

    mergeAdapters(model);
    expect(furthest(logits(model), adapted)).toBeLessThan(1e-5);
    expect(() => withoutAdapters(model, () => 0)).toThrow(/is merged into the base/);
    const folder = mkdtempSync(join(temporary, 'merged-'));
    saveModel(model, folder);
    expect(readdirSync(folder).sort()).toEqual(['config.json', 'model.safetensors']);
    using plain = loadModelFolder(folder);
    expect(furthest(logits(plain), adapted)).toBeLessThan(1e-5);

    unmergeAdapters(model);
    expect(furthest(logits(model), adapted)).toBeLessThan(1e-5);
    expect(
      furthest(
        withoutAdapters(model, () => logits(model)),
        base,
      ),
    ).toBeLessThan(1e-5);
    mergeAdapters(model);
    unloadAdapters(model);
    expect(model.adapters).toBeNull();
    expect(furthest(logits(model), adapted)).toBeLessThan(1e-5);
  });

  it('leaves only itself, the head and the biases asked for to be trained', () => {
    using model = fresh();
    model.decoder.requiresGrad_();
    const head = model.addHead('reward', 1);
    addLora(model, { targetModules: ['q_proj', 'v_proj'], bias: 'lora_only' });
    const names = [...model.trainable()].map(([name]) => name.replace(/layers\.\d+/, 'layers.*'));
    const of = (part: string) => [
      `model.layers.*.self_attn.${part}.lora_A.default.weight`,
      `model.layers.*.self_attn.${part}.lora_B.default.weight`,
      `model.layers.*.self_attn.${part}.base_layer.bias`,
    ];
    expect(new Set(names)).toEqual(new Set([...of('q_proj'), ...of('v_proj'), 'score.weight']));
    expect(model.head).toBe(head);
    for (const [name, parameter] of model.trainable()) expect(parameter.dtype, name).toBe('float32');
  });

  it('lists the modules there are for a name that is none', () => {
    using model = fresh();
    expect(() => addLora(model, { targetModules: ['q_prj'] })).toThrow(
      /no linear module of this model matches "q_prj". Did you mean "q_proj"\? There are: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj \(or whole names such as model\.layers\.0\.self_attn\.q_proj\)/,
    );
    expect(() => addLora(model, { modulesToSave: ['embed_tokns'] })).toThrow(/Did you mean "embed_tokens"/);
    expect(() => addLora(model, { r: 0 })).toThrow(/the rank must be/);
    // Matching this one against a module's name would take practically for ever.
    expect(() => addLora(model, { targetModules: '([a-z_.0-9]+)+!' })).toThrow(/target_modules: .* could run for ever/);
    expect(() => addLora(model, { rankPattern: { '(a|a)*b': 4 } })).toThrow(/rank_pattern.* could run for ever/);
    expect(model.adapters).toBeNull();
    addLora(model, { targetModules: ['model.layers.1.mlp.up_proj'] });
    expect([...model.trainable()].map(([name]) => name)).toEqual([
      'model.layers.1.mlp.up_proj.lora_A.default.weight',
      'model.layers.1.mlp.up_proj.lora_B.default.weight',
    ]);
  });

  it('comes back after an asynchronous body and after one that throws', async () => {
    using model = fresh();
    const base = logits(model);
    addLora(model);
    stir(model);
    const adapted = logits(model);
    const result = withoutAdapters(model, async () => {
      await null;
      return logits(model);
    });
    expect(await result).toEqual(base);
    expect(logits(model)).toEqual(adapted);
    expect(() =>
      withoutAdapters(model, () => {
        throw new Error('inside');
      }),
    ).toThrow('inside');
    expect(logits(model)).toEqual(adapted);
    expect(withoutAdapters(model, () => withoutAdapters(model, () => logits(model)))).toEqual(base);
    expect(logits(model)).toEqual(adapted);
  });
});

it.each(kinds)(
  'a row has the same bits whatever others are beside it, with a gradient or without: %s',
  (_, options) => {
    using model = fresh();
    addLora(model, { r: 3, ...options });
    stir(model);
    seed(1);
    scope(() => {
      const all = randn([48, 32]);
      const [projection] = model.decoder.projections();
      const rows = (count: number) => projection?.forward(all.narrow(0, 0, count)) as Tensor;
      const expected = noGrad(() => rows(48)).numbers();
      for (const count of [1, 2, 3, 4, 7, 16, 33, 48]) {
        const width = expected.length / 48;
        expect(noGrad(() => rows(count)).numbers()).toEqual(expected.slice(0, count * width));
        expect(rows(count).numbers()).toEqual(expected.slice(0, count * width));
      }
    });
  },
);

describe('the sampler', () => {
  it.each(kinds)(
    'writes with the adapter as the trainer sees it, and without it as the base: %s',
    async (_name, options) => {
      seed(6);
      using model = fresh();
      addLora(model, { r: 4, alpha: 8, ...options });
      stir(model);
      using sampler = new Sampler(model);
      const write = async () =>
        (await sampler.generate([{ prompt: [5, 9, 33], maxNewTokens: 6, temperature: 0 }]))[0]?.[0];
      const adapted = await write();
      const bare = await withoutAdapters(model, write);
      expect(adapted?.logprobs).not.toEqual(bare?.logprobs);
      const scored = (of: SampledResponse | undefined) =>
        scope(() =>
          noGrad(() => {
            const batch = packSequences([[5, 9, 33, ...(of?.ids ?? [])]]);
            const tokens = [3, 4, 5, 6, 7, 8];
            return tokenLogprobs(model.decoder, model.decoder.forward(batch), batch, tokens).logp.numbers();
          }),
        );
      // greedy responses report the distribution at temperature 1
      expect(furthest(scored(adapted), [...(adapted?.logprobs ?? [])])).toBeLessThan(1e-5);
      expect(
        furthest(
          withoutAdapters(model, () => scored(bare)),
          [...(bare?.logprobs ?? [])],
        ),
      ).toBeLessThan(1e-5);
      mergeAdapters(model);
      expect((await write())?.ids).toEqual(adapted?.ids);
    },
  );
});

describe('several adapters', () => {
  it('share a base, each with its own change, biases and head, and are saved side by side', () => {
    const folder = join(temporary, 'base');
    saveModel(fresh(), folder);
    seed(2);
    using model = loadModelFolder(folder);
    const base = logits(model);
    model.addHead('reward', 1);
    addLora(model, { bias: 'all' });
    stir(model);
    const first = logits(model);
    const firstHead = model.head?.weight.numbers();
    addLora(model, { name: 'second', r: 2, useDora: true });
    stir(model);
    const second = logits(model);
    expect(furthest(first, second)).toBeGreaterThan(0.01);
    expect(model.head?.weight.numbers()).not.toEqual(firstHead);
    setAdapter(model, 'default');
    expect(logits(model)).toEqual(first);
    expect(model.head?.weight.numbers()).toEqual(firstHead);
    expect(() => setAdapter(model, 'third')).toThrow(/There are: default, second/);
    expect(() => addLora(model, { name: 'second' })).toThrow(/already an adapter "second"/);
    expect(withoutAdapters(model, () => logits(model))).toEqual(base);

    const saved = join(temporary, 'two');
    saveModel(model, saved);
    using again = loadModelFolder(saved);
    expect(logits(again)).toEqual(first);
    expect(again.head?.weight.numbers()).toEqual(firstHead);
    loadAdapter(again, join(saved, 'second'), { name: 'other' });
    expect(logits(again)).toEqual(second);
    setAdapter(again, 'default');
    expect(logits(again)).toEqual(first);
  });

  it('keep a value head beside a language model', () => {
    const folder = join(temporary, 'base-of-values');
    saveModel(fresh(), folder);
    using model = loadModelFolder(folder);
    addLora(model);
    const head = model.addHead('value', 1);
    stir(model);
    const saved = join(temporary, 'values');
    saveModel(model, saved);
    using again = loadModelFolder(saved);
    expect(again.head?.kind).toBe('value');
    expect(again.head?.weight.numbers()).toEqual(head.weight.numbers());
    expect(logits(again)).toEqual(logits(model));
  });
});

describe('training', () => {
  it('moves the adapter alone, learns, and holds no more tensors from step to step', () => {
    seed(4);
    using model = fresh();
    const before = [...model.decoder.parameters()].map(([, parameter]) => parameter.numbers());
    addLora(model, { r: 4, alpha: 8, dropout: 0.1, useDora: true });
    model.train();
    const optimiser = new AdamW(model.trainable(), { lr: 0.02 });
    const losses: number[] = [];
    const counts: number[] = [];
    for (let step = 0; step < 12; step++) {
      scope(() => {
        const value = model.decoder.backward(packSequences(ids), (hidden) => loss(model, hidden), {
          checkpointing: step % 2 === 1,
        });
        losses.push(value.item());
        optimiser.step();
        for (const [, parameter] of model.trainable()) parameter.grad = null;
      });
      counts.push(liveTensors());
    }
    expect(new Set(counts.slice(1)).size).toBe(1);
    expect(losses.at(-1)).toBeLessThan((losses[0] as number) * 0.7);
    expect([...model.decoder.parameters()].map(([, parameter]) => parameter.numbers())).toEqual(before);
    optimiser.dispose();
  });

  it.each([
    ['every layer', {}],
    ['the last layer only', { layersToTransform: [1] }],
    ['the first layer only', { layersToTransform: [0], bias: 'lora_only' }],
  ] as [string, LoraOptions][])(
    'with checkpointing gives the same gradients, dropout and all: %s',
    (_name, options) => {
      using model = fresh();
      addLora(model, { r: 4, dropout: 0.3, ...options });
      stir(model);
      model.train();
      const gradients = (checkpointing: boolean) =>
        scope(() => {
          seed(9);
          model.decoder.backward(packSequences(ids), (hidden) => loss(model, hidden), { checkpointing });
          return [...model.trainable()].map(([, parameter]) => {
            const values = parameter.grad?.numbers();
            parameter.grad = null;
            return values as number[];
          });
        });
      const plain = gradients(false);
      const again = gradients(true);
      plain.forEach((values, i) => {
        expect(furthest(values, again[i] as number[])).toBeLessThan(1e-5);
      });
      expect(plain.flat().some((value) => Math.abs(value) > 1e-4)).toBe(true);
    },
  );

  it('follows the definition of DoRA with dropout', () => {
    using model = fresh();
    addLora(model, { r: 4, alpha: 6, dropout: 0.4, useDora: true, targetModules: ['o_proj'] });
    stir(model);
    model.train();
    const { out } = (model.decoder.layers[0] as { weights: { out: ProjectionLora['projection'] } }).weights;
    const part = (out.adapter as ProjectionLora).parts[0] as ProjectionLora['parts'][0];
    scope(() =>
      noGrad(() => {
        const x = randn([5, 32]);
        seed(17);
        const found = out.forward(x);
        seed(17);
        const dropped = dropout(x, 0.4, true);
        const change = part.b.matmul(part.a).mul(6 / 4);
        const weight = out.weight as Tensor;
        const whole = weight.add(change);
        const gain = (part.magnitude as Tensor).div(aten('linalg_vector_norm', whole, 2, [1]));
        const expected = linear(x, weight, out.bias)
          .add(linear(dropped, weight).mul(gain.sub(1)))
          .add(linear(dropped, change).mul(gain));
        expect(furthest(found.numbers(), expected.numbers())).toBeLessThan(1e-5);
      }),
    );
  });

  it('keeps f32 adapters on a bf16 base', () => {
    using model = fresh('bfloat16');
    addLora(model, { r: 4, targetModules: ['q_proj', 'v_proj', 'down_proj'] });
    scope(() => {
      model.decoder.backward(packSequences(ids), (hidden) => loss(model, hidden).to('float32'));
      for (const [name, parameter] of model.trainable()) {
        expect(parameter.dtype).toBe('float32');
        expect(parameter.grad?.dtype, name).toBe('float32');
      }
    });
    using half = fresh('bfloat16');
    addLora(half, { dtype: 'bfloat16' });
    for (const [, parameter] of half.trainable()) expect(parameter.dtype).toBe('bfloat16');
  });
});
