import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { startHub } from '../hub/server.test-support.ts';
import { modelPlan } from './model-plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-model-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

it('plans with a reference on the hub that has no tokenizer, and still compares the sizes', async () => {
  const model = await tinyModel(join(folder, 'model'));
  const config = readFileSync(join(model, 'config.json'), 'utf8');
  const larger = JSON.stringify({ ...JSON.parse(config), vocab_size: 999 });
  const hub = await startHub({
    'org/base': { 'config.json': config },
    'org/larger': { 'config.json': larger },
    'org/adapter': {
      'adapter_config.json': JSON.stringify({
        peft_type: 'LORA',
        base_model_name_or_path: 'org/base',
        target_modules: ['q_proj'],
      }),
    },
  });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache'));
  const plan = (referenceModel: string) =>
    modelPlan(
      { model, device: 'cpu', dtype: 'float32', lora: false, gradientCheckpointing: false } as Parameters<
        typeof modelPlan
      >[0],
      8,
      { referenceModel },
    );
  try {
    for (const reference of ['org/base', 'org/adapter'])
      await expect(plan(reference)).resolves.toMatchObject({ positions: 512 });
    await expect(plan('org/larger')).rejects.toThrow('The reference org/larger has 999 tokens');
  } finally {
    await hub.close();
  }
});

it('refuses a reward model that is still on the hub, by what its config says, and names its base', async () => {
  const config = JSON.parse(readFileSync(join(await tinyModel(join(folder, 'base')), 'config.json'), 'utf8'));
  const tokenizer = readFileSync(join(folder, 'base', 'tokenizer.json'), 'utf8');
  const hub = await startHub({
    'org/base': { 'config.json': JSON.stringify(config), 'tokenizer.json': tokenizer },
    'org/judge': {
      'config.json': JSON.stringify({ ...config, architectures: ['Qwen3ForSequenceClassification'] }),
      'tokenizer.json': tokenizer,
    },
    'org/adapter': {
      'adapter_config.json': JSON.stringify({
        ...{ peft_type: 'LORA', task_type: 'SEQ_CLS', target_modules: ['q_proj'] },
        base_model_name_or_path: 'org/base',
      }),
      'tokenizer.json': tokenizer,
    },
  });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache-of-judges'));
  const plan = (model: string, mayHaveHead?: boolean) =>
    modelPlan(
      { model, device: 'cpu', dtype: 'float32', lora: false, gradientCheckpointing: false } as Parameters<
        typeof modelPlan
      >[0],
      8,
      { mayHaveHead },
    );
  try {
    await expect(plan('org/base')).resolves.toMatchObject({ positions: 512 });
    await expect(plan('org/judge')).rejects.toThrow('--model org/judge is a reward model, not a policy');
    await expect(plan('org/adapter')).rejects.toThrow('trained from (--model org/base)');
    for (const model of ['org/judge', 'org/adapter'])
      await expect(plan(model, true)).resolves.toMatchObject({ positions: 512 });
  } finally {
    await hub.close();
  }
});
