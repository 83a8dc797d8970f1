import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { saveCheckpoint, trainerStateName } from './checkpoints.ts';
import { savedConfig } from './config/config.ts';
import { cadenceFields, loraFields, optimizerFields, runFields } from './config/training-fields.ts';
import { resolveRun } from './resume.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-resume-'));
afterAll(() => rmSync(folder, { recursive: true }));

const schema = z.object({
  ...runFields({ outputDir: join(folder, 'out'), logDir: './logs' }),
  ...optimizerFields({ lr: 1e-5 }),
  ...cadenceFields(),
  ...loraFields(),
});

describe('resolveRun', () => {
  it('needs no checkpoint', async () => {
    const { config, resume } = await resolveRun(schema, { lr: '2e-5', learning_rate: undefined });
    expect(resume).toBeUndefined();
    expect(config).toMatchObject({
      lr: 2e-5,
      logDir: './logs',
      gradAccum: 4,
      maxGradNorm: 10,
      seed: 42,
      loraR: 16,
      evalSteps: 50,
      saveSteps: 500,
    });
  });

  it('puts the config of the resumed checkpoint under the file and the flags', async () => {
    const first = await resolveRun(schema, { lr: '3e-4', epochs: '7', logSteps: '1', runName: 'r' });
    await saveCheckpoint(join(folder, 'out', 'r'), 'step-5', {
      step: 5,
      json: { 'train_config.json': savedConfig(schema, first.config), 'trainer_state.json': {} },
    });
    const file = join(folder, 'a.yaml');
    writeFileSync(file, 'resume_from: latest\nnum_epochs: 8\n');
    const again = await resolveRun(schema, { config: file, logSteps: '2' });
    expect(again.resume).toMatchObject({ step: 5, path: join(folder, 'out', 'r', 'step-5') });
    expect(again.config).toMatchObject({ lr: 3e-4, epochs: 8, logSteps: 2, runName: 'r' });
    expect(again.sources).toMatchObject({ lr: 'the checkpoint', epochs: file, logSteps: 'command line' });
  });

  /** The folder of a run that was trained in `cwd`. */
  async function left(name: string, info: object, config: Record<string, unknown>) {
    const run = join(folder, name);
    await saveCheckpoint(run, 'step-5', { step: 5, json: { 'train_config.json': config, [trainerStateName]: {} } });
    writeFileSync(join(run, 'run.json'), JSON.stringify(info));
    return run;
  }

  it('says what kind of run it is where that is another', async () => {
    const run = await left('policy', { command: 'train policy' }, { group_size: 8, kl_coef: 0.1 });
    await expect(resolveRun(schema, { resumeFrom: run }, 'train reward')).rejects.toThrow(
      'that is a run of attune train policy, not of attune train reward.',
    );
  });

  it('names the folder where a file is given', async () => {
    const run = await left('file', { command: 'train reward' }, {});
    await expect(resolveRun(schema, { resumeFrom: join(run, 'run.json') })).rejects.toThrow(
      "that is a file. Name the run's folder",
    );
  });

  it('takes relative paths from where the run was started', async () => {
    const paths = z.object({ ...schema.shape, rewardModelPath: z.string().optional(), model: z.string().default('') });
    mkdirSync(join(folder, 'there', 'rm'), { recursive: true });
    const saved = { reward_model_path: './rm', model: 'org/name', log_dir: './logs' };
    const run = await left('moved', { command: 'train policy', cwd: join(folder, 'there') }, saved);
    const { config } = await resolveRun(paths, { resumeFrom: run });
    expect(config).toMatchObject({
      rewardModelPath: join(folder, 'there', 'rm'),
      model: 'org/name',
      logDir: join(folder, 'there', 'logs'),
    });
    // A later resumption from another folder ended before it saved. run.json has its folder, the checkpoint the earlier
    // one.
    const state = { cwd: join(folder, 'there') };
    await saveCheckpoint(run, 'step-6', { step: 6, json: { 'train_config.json': saved, [trainerStateName]: state } });
    writeFileSync(join(run, 'run.json'), JSON.stringify({ command: 'train policy', cwd: folder }));
    const again = await resolveRun(paths, { resumeFrom: run });
    expect(again.config).toMatchObject({
      rewardModelPath: join(folder, 'there', 'rm'),
      logDir: join(folder, 'there', 'logs'),
    });
  });
});
