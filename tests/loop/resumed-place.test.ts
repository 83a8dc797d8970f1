/** Every trainer refuses another place for a run that goes on. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { saveCheckpoint, trainerStateName } from '../../src/runs/checkpoints.ts';
import { resolveRun } from '../../src/runs/index.ts';
import { policySchema } from '../../src/trainers/policy/config.ts';
import { preferenceSchema } from '../../src/trainers/preference/config.ts';
import { rewardSchema } from '../../src/trainers/reward/config.ts';
import { sftSchema } from '../../src/trainers/sft/sft.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-resumed-place-'));
afterAll(() => rmSync(folder, { recursive: true }));

it.each([
  ['sft', sftSchema],
  ['reward', rewardSchema],
  ['preference', preferenceSchema],
  ['policy', policySchema],
])('train %s', async (verb, schema) => {
  const run = join(folder, verb, 'a');
  await saveCheckpoint(run, 'step-1', { step: 1, json: { 'train_config.json': {}, [trainerStateName]: {} } });
  const resolved = (flags: object) => resolveRun(schema, { resumeFrom: run, ...flags }, `train ${verb}`);
  await expect(resolved({ outputDir: join(folder, 'other') })).rejects.toThrow('--output-dir: has no effect here');
  await expect(resolved({ runName: 'b' })).rejects.toThrow('--run-name: has no effect here');
  await expect(resolved({ outputDir: join(folder, verb), runName: 'a' })).resolves.toMatchObject({
    resume: { step: 1 },
  });
});
