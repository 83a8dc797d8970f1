import { mkdtempSync, rmSync } from 'node:fs';
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
    expect(await policyPlan(config, progress)).toMatch(/prompts: 1, 1 held out/);
    expect(labels).toEqual([expect.stringContaining('org/prompts')]);
  } finally {
    await hub.close();
  }
});
