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
