import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
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
  // As the hub's cache holds it after the small files alone.
  rmSync(join(adapter, 'adapter_model.safetensors'));
  await expect(rewardModelBytes(adapter)).resolves.toBeGreaterThan(0);
  await expect(rewardModelBytes(base)).rejects.toThrow('it has no reward head');
});
