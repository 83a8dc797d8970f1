/**
 * Adapters that PEFT made (adapters/, by peft_check.py): attune loads them and gives PEFT's logits, rewards, loss and
 * gradients; saved again they are the same.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  loadModel,
  loadModelFolder,
  type Model,
  packSequences,
  saveModel,
  withoutAdapters,
} from '../../src/models/index.ts';
import { aten, noGrad, openSafetensors, scope, type Tensor, tensor } from '../../src/tensor/index.ts';

const adapters = join(import.meta.dirname, 'adapters');
const fixtures = join(import.meta.dirname, 'fixtures');
const temporary = mkdtempSync(join(tmpdir(), 'attune-adapters-'));
afterAll(() => rmSync(temporary, { recursive: true }));

interface Reference {
  ids: number[][];
  logits: number[];
  loss: number;
  gradNorms: Record<string, number>;
}

function reference(folder: string): Reference {
  const { loss, grad_norms: gradNorms } = JSON.parse(readFileSync(join(folder, 'reference.json'), 'utf8'));
  using file = openSafetensors(join(folder, 'reference.safetensors'));
  return scope(() => ({
    ids: file.tensor('input_ids').tolist() as number[][],
    logits: file.tensor('logits').numbers(),
    loss,
    gradNorms,
  }));
}

/** What transformers calls logits: of the vocabulary, of each sequence's last token, of every token. */
function logitsOf(model: Model, hidden: Tensor, ids: number[][]): Tensor {
  if (model.head === null) return model.decoder.logits(hidden);
  if (model.head.kind !== 'reward') return model.head.forward(hidden);
  const last = ids.map((row, i) => (i + 1) * row.length - 1);
  return model.head.forward(hidden.indexSelect(0, tensor(last, { dtype: 'int64' })));
}

function lossOf(model: Model, hidden: Tensor, ids: number[][]): Tensor {
  const logits = logitsOf(model, hidden, ids);
  if (model.head !== null) return logits.tanh().sum();
  const rows = logits.view(ids.length, -1, logits.size(1)).narrow(1, 0, (ids[0] as number[]).length - 1);
  const targets = tensor(
    ids.flatMap((row) => row.slice(1)),
    { dtype: 'int64' },
  );
  return aten('cross_entropy_loss', rows.reshape(-1, logits.size(1)), targets);
}

function numbersOf(model: Model, ids: number[][]): number[] {
  return scope(() => noGrad(() => logitsOf(model, model.decoder.forward(packSequences(ids)), ids).numbers()));
}

const furthest = (a: number[], b: number[]) => {
  expect(a.length).toBe(b.length);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);
};

/** Gradients by PEFT's names: the adapters' own, and those of what it trains whole. */
function gradientNorms(model: Model): Map<string, number> {
  const norms = new Map<string, number>();
  const note = (name: string, gradient: Tensor | null) => {
    if (gradient !== null) norms.set(name.replace('.default', ''), gradient.norm().item());
  };
  for (const [name, parameter] of model.adapters?.active?.parameters() ?? []) note(name, parameter.grad);
  for (const weight of model.decoder.namedWeights()) note(weight.name, weight.grad());
  for (const [name, parameter] of model.parameters()) if (name.startsWith('score.')) note(name, parameter.grad);
  return norms;
}

describe("PEFT's adapters", () => {
  it.each(readdirSync(adapters).sort())('%s', async (name) => {
    const folder = join(adapters, name);
    const expected = reference(folder);
    using model = await loadModel(folder, { dtype: 'float32' });
    const found = numbersOf(model, expected.ids);
    // PEFT's own f32 logits are up to 1.4e-5 from the same computed in f64
    expect(furthest(found, expected.logits)).toBeLessThan(2e-5);

    for (const checkpointing of [false, true]) {
      scope(() => {
        for (const [, parameter] of model.parameters()) parameter.grad = null;
        const value = model.decoder.backward(
          packSequences(expected.ids),
          (hidden) => lossOf(model, hidden, expected.ids),
          { checkpointing },
        );
        expect(Math.abs(value.item() - expected.loss)).toBeLessThan(1e-5);
        const norms = gradientNorms(model);
        for (const [key, norm] of Object.entries(expected.gradNorms)) {
          const plain = norms.has(key) ? key : key.replace('.base_layer.bias', '.bias');
          expect(Math.abs((norms.get(plain) ?? Number.NaN) - norm), key).toBeLessThan(1e-3 * norm + 1e-6);
          norms.delete(plain);
        }
        expect([...norms.keys()], 'trained here, not by PEFT').toEqual([]);
      });
    }

    const base = JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8')).base_model_name_or_path;
    using bare = loadModelFolder(join(fixtures, base.split('/').at(-1)), { dtype: 'float32' });
    const hidden = (of: Model) => scope(() => noGrad(() => of.decoder.forward(packSequences(expected.ids)).numbers()));
    expect(withoutAdapters(model, () => hidden(model))).toEqual(hidden(bare));
    expect(numbersOf(model, expected.ids)).toEqual(found);

    const saved = join(temporary, name);
    saveModel(model, saved);
    expect(tensorsOf(saved)).toEqual(tensorsOf(folder));
    const settings = (path: string) => {
      const {
        base_model_name_or_path: _,
        modules_to_save,
        target_modules,
        ...rest
      } = JSON.parse(readFileSync(join(path, 'adapter_config.json'), 'utf8'));
      return { ...rest, modules_to_save: modules_to_save?.sort(), target_modules };
    };
    expect(settings(saved)).toEqual(settings(folder));
    using again = loadModelFolder(saved, { dtype: 'float32' });
    expect(numbersOf(again, expected.ids)).toEqual(found);
  });
});

function tensorsOf(folder: string): Record<string, number[]> {
  using file = openSafetensors(join(folder, 'adapter_model.safetensors'));
  return scope(() => Object.fromEntries(file.names.sort().map((name) => [name, file.tensor(name).numbers()])));
}

describe('an adapter folder', () => {
  const broken = (change: (config: Record<string, unknown>) => Record<string, unknown>): string => {
    const folder = mkdtempSync(join(temporary, 'broken-'));
    cpSync(join(adapters, 'llama'), folder, { recursive: true });
    const path = join(folder, 'adapter_config.json');
    const config = JSON.parse(readFileSync(path, 'utf8'));
    writeFileSync(path, JSON.stringify(change({ ...config, base_model_name_or_path: join(fixtures, 'llama') })));
    return folder;
  };
  it.each([
    ['lora_bias', true],
    ['use_qalora', true],
    ['trainable_token_indices', [1, 2]],
    ['init_lora_weights', 'pissa'],
    ['peft_type', 'ADALORA'],
    ['task_type', 'SEQ_2_SEQ_LM'],
    ['some_new_method', { on: 1 }],
    ['base_model_name_or_path', ['x']],
    ['target_modules', 5],
    ['modules_to_save', 'score'],
    ['layers_to_transform', 'all'],
    ['rank_pattern', { q_proj: '8' }],
  ])('is refused by name where %s is %j', async (field, value) => {
    await expect(loadModel(broken((config) => ({ ...config, [field]: value })))).rejects.toThrow(
      new RegExp(`adapter_config\\.json: ${field} is `),
    );
  });
  it('says what is wrong with a base that is not there, is missing or is the adapter itself', async () => {
    const at = (base: unknown) => broken((config) => ({ ...config, base_model_name_or_path: base }));
    expect(() => loadModelFolder(at('org/nowhere'))).toThrow(/base model "org\/nowhere" is not a folder/);
    await expect(loadModel(at(null))).rejects.toThrow(/base_model_name_or_path is missing/);
    await expect(loadModel(at('.'))).rejects.toThrow(/names itself/);
  });
  it('does not fit another model', async () => {
    const other = broken((config) => ({ ...config, base_model_name_or_path: join(fixtures, 'llama-head-dim') }));
    await expect(loadModel(other)).rejects.toThrow(/but this model calls for/);
    const fewer = broken((config) => ({ ...config, target_modules: ['q_proj'] }));
    await expect(loadModel(fewer)).rejects.toThrow(/have no place in this model/);
  });
});
