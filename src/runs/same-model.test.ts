import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { z } from 'zod';
import { saveCheckpoint, trainerStateName } from './checkpoints.ts';
import { runFields } from './config/training-fields.ts';
import { resolveRun } from './resume.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-same-model-'));
afterAll(() => rmSync(folder, { recursive: true }));
const model = join(folder, 'base');
const other = join(folder, 'other');
for (const path of [model, other]) mkdirSync(path);
const schema = z.object({
  ...runFields({ outputDir: './checkpoints' }),
  model: z.string().default('org/usual'),
  fromConfig: z.string().optional(),
});

async function resume(config: object, flags: Record<string, unknown>, command?: string) {
  const run = join(folder, 'run');
  await saveCheckpoint(run, 'step-5', { step: 5, json: { 'train_config.json': config, [trainerStateName]: {} } });
  return resolveRun(schema, { resumeFrom: run, ...flags }, command);
}

it('refuses other weights than the run began from, and names both', async () => {
  const message = `--model: names other weights than the run's: it began from ${model}, and this says ${other}. Leave it out`;
  for (const command of ['train sft', undefined])
    await expect(resume({ model }, { model: other }, command)).rejects.toThrow(message);
  // A file that spells out the default means the same.
  const config = join(folder, 'a.yaml');
  writeFileSync(config, 'model: org/usual\n');
  await expect(resume({ model }, { config }, 'train sft')).rejects.toThrow(/ {2}model: .*a\.yaml/);
});

it('takes the same weights by another path, and what is left out', async () => {
  for (const flags of [{}, { model: `${other}/../base/` }])
    expect((await resume({ model }, flags, 'train sft')).resume?.step).toBe(5);
});

it('asks nothing of a run that began from fresh weights', async () => {
  const fresh = { model: 'org/usual', from_config: join(folder, 'arch.json') };
  expect((await resume(fresh, { model: other })).resume?.step).toBe(5);
});
