import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { preferenceRows } from '../../../tests/support/preference-rows.ts';
import { startHub } from '../../hub/server.test-support.ts';
import { readPipeline } from './config.ts';
import { planPipeline } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-pipeline-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

it('shows the download of a hub dataset, also where the model has a fault', async () => {
  const rows = preferenceRows(8).map((row) => `${JSON.stringify(row)}\n`);
  const hub = await startHub({ 'org/pairs': { 'train.jsonl': rows.join('') } });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache'));
  const { config } = readPipeline({
    models: [{ name: 'missing', huggingface_id: join(folder, 'nowhere') }],
    dataset: { name: 'org/pairs' },
    training: { output_dir: join(folder, 'out') },
  });
  const labels: string[] = [];
  const progress = {
    start(label: string) {
      labels.push(label);
      return { advance() {}, done() {} };
    },
  };
  try {
    const [plan] = await planPipeline(config, { progress });
    expect(plan?.faults).toEqual([expect.stringContaining('nowhere')]);
    expect(labels).toEqual([expect.stringContaining('org/pairs')]);
  } finally {
    await hub.close();
  }
});
