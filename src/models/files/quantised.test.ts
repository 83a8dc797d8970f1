/** Models whose blocks are held in 8 or 4 bits: their results, their adapters and heads, their memory. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { dtypeBytes, liveTensors, noGrad, scope, seed, type Tensor } from '../../tensor/index.ts';
import {
  addLora,
  inspectModel,
  type LoraOptions,
  loadAdapter,
  loadModelFolder,
  type Model,
  mergeAdapters,
  packSequences,
  type QuantType,
  quantTypes,
  type SampledResponse,
  Sampler,
  saveModel,
  scoredTokens,
  tokenLogprobs,
  withoutAdapters,
} from '../index.ts';

const temporary = mkdtempSync(join(tmpdir(), 'attune-quantised-'));
afterAll(() => rmSync(temporary, { recursive: true }));

const at = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
const tiny = at('models/tiny');
const fixtures = at('tests/models/fixtures');
const ids = [
  [5, 9, 33, 12, 31, 7, 20, 44, 18],
  [40, 4, 11],
];

const load = (quantType?: QuantType, folder = tiny) => loadModelFolder(folder, { dtype: 'float32', quantType });
const logits = (model: Model) =>
  scope(() => noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids))).numbers()));
const furthest = (a: number[], b: number[]) =>
  a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);
const spread = (values: number[]) => Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0) / values.length);

it('refuses a type that there is not, which was taken for 4 bits', () => {
  for (const wrong of ['int2', 'INT8', '', null])
    expect(() => load(wrong as QuantType)).toThrow(/expected int8 or int4/);
});

/** A plain model with exactly the weights that the quantised ones stand for. */
function plainTwin(model: Model): Model {
  const twin = load();
  const quantised = [...model.decoder.projections()];
  scope(() =>
    noGrad(() => {
      for (const [i, { weight }] of [...twin.decoder.projections()].entries())
        weight?.copy_(quantised[i]?.quantised?.dequantise() as Tensor);
    }),
  );
  return twin;
}

describe('a quantised model', () => {
  it.each(quantTypes)('%s computes what its weights stand for, near the original, in less memory', (type) => {
    const before = liveTensors();
    using plain = load();
    using model = load(type);
    using twin = plainTwin(model);
    const original = logits(plain);
    const found = logits(model);
    expect(furthest(found, logits(twin))).toBeLessThan(5e-4);
    // measured: 0.6 % and 12 % of the logits' spread
    const error = spread(found.map((value, i) => value - (original[i] as number)));
    expect(error / spread(original)).toBeLessThan(type === 'int8' ? 0.012 : 0.2);
    expect(error).toBeGreaterThan(0);

    expect(model.decoder.quantType).toBe(type);
    expect(model.decoder.parameterCount()).toBe(plain.decoder.parameterCount());
    const matrices = [...plain.decoder.projections()].reduce((sum, { weight }) => sum + (weight?.numel ?? 0), 0);
    const others = plain.decoder.bytes - 4 * matrices;
    expect((model.decoder.bytes - others) / matrices).toBeLessThan(type === 'int8' ? 1.04 : 0.52);
    for (const each of [plain, model, twin]) each.dispose();
    expect(liveTensors()).toBe(before);
  });

  it.each(readdirSync(fixtures))('of the family of %s is near the original', (name) => {
    const folder = join(fixtures, name);
    using plain = load(undefined, folder);
    using model = load('int8', folder);
    const expected = logits(plain);
    expect(furthest(logits(model), expected)).toBeLessThan(0.1 * Math.max(...expected.map(Math.abs)));
  });

  it.each(quantTypes)('%s tells beforehand what it takes', async (type) => {
    const { memory } = await inspectModel(tiny, { device: 'cpu' });
    using model = loadModelFolder(tiny, { quantType: type });
    expect(memory.quantisedBytes[type]).toBe(model.decoder.bytes);
  });

  it.each(quantTypes)('%s is sampled from with the log-probs that the forward pass gives', async (type) => {
    using model = load(type);
    using sampler = new Sampler(model);
    const prompt = [5, 9, 33];
    const request = { prompt, maxNewTokens: 8, seed: 3 };
    const [[greedy], [drawn]] = (await sampler.generate([
      { ...request, temperature: 0 },
      { ...request, temperature: 0.9 },
    ])) as [[SampledResponse], [SampledResponse]];
    expect(greedy.ids.length).toBeGreaterThan(0);
    scope(() =>
      noGrad(() => {
        const whole = [...prompt, ...drawn.ids];
        const batch = packSequences([whole]);
        const places = scoredTokens(
          batch.starts,
          whole.map((_, i) => (i >= prompt.length ? 1 : 0)),
        );
        const { logp } = tokenLogprobs(model.decoder, model.decoder.forward(batch), batch, places, 0.9);
        expect(furthest(logp.numbers(), [...drawn.logprobs])).toBeLessThan(1e-4);
      }),
    );
  });
});

describe('adapters on a quantised base', () => {
  const kinds: [string, LoraOptions][] = [
    ['LoRA', {}],
    ['LoRA on all', { targetModules: 'all-linear' }],
    ['DoRA', { useDora: true, targetModules: ['k_proj', 'down_proj'] }],
  ];

  /** Gradients of everything trainable, for a loss on all logits. */
  function gradients(model: Model, checkpointing = false): Map<string, number[]> {
    return scope(() => {
      const loss = (hidden: Tensor) => model.decoder.logits(hidden).square().mean();
      model.decoder.backward(packSequences(ids), loss, { checkpointing });
      return new Map(
        Array.from(model.trainable(), ([name, parameter]) => {
          const found = (parameter.grad as Tensor).numbers();
          parameter.grad = null;
          return [name, found] as const;
        }),
      );
    });
  }

  it.each(kinds)('%s has the gradients that it has on the plain twin', (_, options) => {
    const before = liveTensors();
    using model = load('int4');
    using twin = plainTwin(model);
    const [own, expected] = [model, twin].map((each) => {
      seed(7);
      addLora(each, { r: 4, alpha: 8, ...options });
      // as after some training: B is no longer 0
      noGrad(() => {
        for (const [, parameter] of each.trainable()) scope(() => parameter.add_(parameter.clone().normal_(0, 0.05)));
      });
      return gradients(each);
    }) as [Map<string, number[]>, Map<string, number[]>];
    expect([...own.keys()]).toEqual([...expected.keys()]);
    expect([...own.keys()].every((name) => name.includes('lora_'))).toBe(true);
    for (const [name, values] of expected) {
      expect(spread(values)).toBeGreaterThan(0);
      expect(furthest(own.get(name) as number[], values)).toBeLessThan(1e-3 * Math.max(...values.map(Math.abs)) + 1e-7);
    }
    for (const [name, values] of gradients(model, true))
      expect(furthest(values, own.get(name) as number[])).toBeLessThan(1e-4);
    for (const each of [model, twin]) each.dispose();
    expect(liveTensors()).toBe(before);
  });

  it('come off exactly, are saved and loaded, and are merged into what the base stands for', () => {
    using model = load('int8');
    const base = logits(model);
    addLora(model, { r: 4 });
    noGrad(() => {
      for (const [, parameter] of model.trainable()) scope(() => parameter.add_(parameter.clone().normal_(0, 0.05)));
    });
    const adapted = logits(model);
    expect(furthest(adapted, base)).toBeGreaterThan(0.01);
    expect(withoutAdapters(model, () => logits(model))).toEqual(base);
    const folder = join(temporary, 'adapter');
    saveModel(model, folder);
    using other = load('int8');
    loadAdapter(other, folder);
    expect(logits(other)).toEqual(adapted);
    // the folder of an adapter gives its base, quantised as asked, with the adapter on it
    using whole = load('int8', folder);
    expect(logits(whole)).toEqual(adapted);
    mergeAdapters(whole);
    expect(whole.decoder.quantType).toBe(null);
    expect(furthest(logits(whole), adapted)).toBeLessThan(1e-3);
  });
});

it('the dtype of what flows is the decoder’s, whatever the weights', () => {
  using model = loadModelFolder(tiny, { dtype: 'bfloat16', quantType: 'int4' });
  const hidden = scope(() => noGrad(() => model.decoder.forward(packSequences(ids))));
  expect([hidden.dtype, dtypeBytes[model.decoder.dtype]]).toEqual(['bfloat16', 2]);
  hidden.dispose();
});
