import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { tinyRewardModel } from '../../tests/support/tiny-reward-model.ts';
import { resolveModel } from '../hub/hub.ts';
import { startHub } from '../hub/server.test-support.ts';
import { addLora, loadModelFolder, saveModel } from '../models/index.ts';
import { rewardModelBytes } from './planned-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-planned-reward-'));
afterAll(() => rmSync(folder, { recursive: true }));

it("refuses an adapter without a reward head only where the adapter's own weights are here", async () => {
  const base = await tinyModel(join(folder, 'base'));
  using model = loadModelFolder(base);
  addLora(model, { r: 2 });
  const adapter = join(folder, 'adapter');
  saveModel(model, adapter);
  await expect(rewardModelBytes(adapter)).rejects.toThrow('is a language model: it has no reward head');
  // The state of the hub's cache after only the small files were downloaded.
  rmSync(join(adapter, 'adapter_model.safetensors'));
  await expect(rewardModelBytes(adapter)).resolves.toBeGreaterThan(0);
  await expect(rewardModelBytes(base)).rejects.toThrow('it has no reward head');
});

it('plans with a reward model of which only some shards were fetched, and refuses a folder that lacks some', async () => {
  const path = await tinyRewardModel(folder, 'preference');
  const index = { weight_map: { 'score.weight': 'model-00002-of-00002.safetensors' } };
  const files = Object.fromEntries(
    ['config.json', 'tokenizer.json'].map((name) => [name, readFileSync(join(path, name), 'utf8')]),
  );
  const hub = await startHub({ 'org/judge': files });
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache'));
  const fetched = await resolveModel('org/judge', { tokenizerOnly: true });
  try {
    for (const place of [fetched, path]) {
      rmSync(join(place, 'model.safetensors'), { force: true });
      writeFileSync(join(place, 'model.safetensors.index.json'), JSON.stringify(index));
    }
    await expect(rewardModelBytes('org/judge')).resolves.toBeGreaterThan(0);
    await expect(rewardModelBytes(path)).rejects.toThrow('model-00002-of-00002.safetensors');
  } finally {
    vi.unstubAllEnvs();
    await hub.close();
  }
});
