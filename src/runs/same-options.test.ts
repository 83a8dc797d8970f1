import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { saveCheckpoint, trainerStateName } from './checkpoints.ts';
import { field } from './config/fields.ts';
import { runFields } from './config/training-fields.ts';
import { resolveRun } from './resume.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-same-options-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);
const fixed = (kind: 'value' | 'model' | 'file') => ({ description: '', fixed: kind });
const schema = z.object({
  ...runFields({ outputDir: './checkpoints' }),
  loss: field(z.string().default('dpo'), fixed('value')),
  rmQuantType: field(z.enum(['int8', 'int4']).optional(), fixed('value')),
  rewardModelPath: field(z.string().optional(), fixed('model')),
  rewardModule: field(z.string().optional(), fixed('file')),
  lr: z.number().default(1e-3),
});
const before = { seed: 1, reward_model_path: at('judge'), reward_module: at('mine.ts'), lr: 0.5 };
const run = at('run');
const resume = (flags: Record<string, unknown>) => resolveRun(schema, { resumeFrom: run, ...flags }, 'train policy');

beforeAll(async () => {
  for (const name of ['judge', 'other']) mkdirSync(at(name));
  writeFileSync(at('mine.ts'), '');
  copyFileSync(at('mine.ts'), at('yours.ts'));
  await saveCheckpoint(run, 'step-5', { step: 5, json: { 'train_config.json': before, [trainerStateName]: {} } });
});

it('refuses what says what is optimised, all at once, with both values and the way on', async () => {
  const changes = {
    loss: 'ipo',
    rmQuantType: 'int8',
    seed: 2,
    rewardModelPath: at('other'),
    rewardModule: at('yours.ts'),
  };
  const error = await resume(changes).catch((reason) => reason);
  expect(error.message.split('\n')).toEqual([
    'The configuration has 5 faults:',
    expect.stringMatching(
      /--seed: cannot change in a resumed run: it began with 1, and this says 2\. Leave it out to go/,
    ),
    expect.stringMatching(/--loss: .* began with dpo, and this says ipo\./),
    expect.stringMatching(/--rm-quant-type: .* began with none, and this says int8\..*--model .*step-5 in place/),
    expect.stringMatching(/--reward-model-path: .*judge, and this says .*other\./),
    expect.stringMatching(/--reward-module: .*mine\.ts, and this says .*yours\.ts\./),
  ]);
});

it('leaves a file that is not there to what reads it', async () => {
  await expect(resume({ rewardModule: at('nope.ts') })).resolves.toMatchObject({ resume: { step: 5 } });
});

it('takes the same by another path, and what was moved', async () => {
  const same = {
    loss: 'dpo',
    seed: 1,
    rewardModelPath: `${folder}/other/../judge`,
    rewardModule: `${folder}/./mine.ts`,
  };
  await expect(resume(same)).resolves.toMatchObject({ resume: { step: 5 } });
  rmSync(at('judge'), { recursive: true });
  rmSync(at('mine.ts'));
  const moved = { rewardModelPath: at('other'), rewardModule: at('yours.ts') };
  await expect(resume(moved)).resolves.toMatchObject({ resume: { step: 5 } });
});

it('lists what else has changed', async () => {
  expect((await resume({})).changed).toEqual([]);
  expect((await resume({ lr: 0.25 })).changed).toEqual([{ name: 'lr', was: 0.5, is: 0.25, source: 'command line' }]);
});
