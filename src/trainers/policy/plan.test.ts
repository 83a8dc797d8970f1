import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { startHub } from '../../hub/server.test-support.ts';
import { policySchema } from './config.ts';
import { policyPlan } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

it('shows the download of the prompts of a hub dataset', async () => {
  const model = await tinyModel(join(folder, 'model'));
  const prompts = ['red', 'blue'].map((prompt) => `${JSON.stringify({ prompt, answer: 'a colour' })}\n`);
  const hub = await startHub({ 'org/prompts': { 'train.jsonl': prompts.join('') } });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache'));
  const labels: string[] = [];
  const progress = {
    start(label: string) {
      labels.push(label);
      return { advance() {}, done() {} };
    },
  };
  try {
    const config = policySchema.parse({ model, dataset: 'org/prompts', evalNumPrompts: 1, maxNewTokens: 8 });
    expect(await policyPlan(config, { progress })).toMatch(/prompts: 1, 1 held out/);
    expect(labels).toEqual([expect.stringContaining('org/prompts')]);
  } finally {
    await hub.close();
  }
});

it('fetches no weights from the hub', async () => {
  const path = await tinyModel(join(folder, 'published'));
  const files = Object.fromEntries(readdirSync(path).map((name) => [name, readFileSync(join(path, name))]));
  const hub = await startHub({ 'org/model': files });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache-of-plans'));
  try {
    const config = policySchema.parse({ model: 'org/model', task: 'gcd', maxNewTokens: 8, evalNumPrompts: 1 });
    expect(await policyPlan(config)).toContain('reference: a second copy');
    const asked = hub.seen.map(({ url }) => url);
    expect(asked.some((url) => url.endsWith('/config.json'))).toBe(true);
    expect(asked.filter((url) => url.includes('.safetensors'))).toEqual([]);
  } finally {
    await hub.close();
  }
});

it('refuses tasks none of whose prompts fits, as the run does', async () => {
  const model = await tinyModel(join(folder, 'narrow'));
  const config = policySchema.parse({ model, task: 'gcd', maxNewTokens: 8, promptMaxLength: 2, evalSteps: -1 });
  await expect(policyPlan(config)).rejects.toThrow(/prompts in a row were longer than 2 tokens/);
});
