/** A checkpoint of a sharded optimiser is gathered block by block: no rank holds it all at once. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { spawnRanks } from '../../../tests/dist/spawn.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-saving-'));
afterAll(() => rmSync(folder, { recursive: true }));
const script = join(import.meta.dirname, 'saving.test-support.ts');

it.concurrent.each([
  ['optimizer', 'float32', 2],
  ['optimizer', 'bfloat16', 4],
  ['full', 'float32', 2],
  ['full', 'bfloat16', 2],
])('--shard %s of %s, %i ranks', async (mode, dtype, ranks) => {
  const path = join(folder, `${mode}-${dtype}.safetensors`);
  const texts = await spawnRanks(ranks, [script, path, dtype, mode]);
  for (const text of texts) {
    const { held, left, bucket, blocks } = JSON.parse(text) as Record<'held' | 'left' | 'bucket' | 'blocks', number>;
    // A block of one kind of state in f32, and this rank's part of it, plus the lengths of small messages.
    expect(held).toBeGreaterThanOrEqual(bucket);
    expect(held).toBeLessThanOrEqual(bucket + bucket / ranks + 4096);
    expect(left).toBe(0);
    expect(statSync(path).size).toBeGreaterThan((dtype === 'float32' ? 2 : 3) * blocks * 0.99 * bucket);
  }
});
