import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { z } from 'zod';
import { mlpTask } from '../../../tests/loop/mlp-task.ts';
import { cadenceFields, optimizerFields, runFields } from '../../runs/config/training-fields.ts';
import { resolveRun } from '../../runs/resume.ts';
import { evalName, loopOptions, startRun } from './config.ts';
import { trainLoop } from './loop.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-loop-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

const schema = z.object({ ...runFields({ outputDir: folder }), ...optimizerFields({ lr: 0.01 }), ...cadenceFields() });

it('goes from flags to a run and back to it', async () => {
  const flags = {
    saveSteps: '2',
    evalSteps: '2',
    warmupRatio: '0.5',
    runName: 'r',
    reportTo: 'none',
    metricForBestModel: 'eval_loss',
  };
  const train = async (given: Record<string, unknown>) => {
    const resolved = await resolveRun(schema, given);
    const task = mlpTask({ totalSteps: 4 });
    const run = await startRun('test', schema, resolved, { curves: false });
    const options = {
      ...loopOptions(resolved.config, task.totalSteps, { metric: 'loss', names: ['loss'] }),
      run,
      config: { save_steps: 2, eval_steps: 2, warmup_ratio: 0.5 },
      resumeFrom: resolved.resume?.path,
    };
    const steps: number[] = [];
    for await (const step of trainLoop(task, options)) steps.push(step.step);
    return { steps, options, weights: task.weights() };
  };
  const first = await train(flags);
  expect(first.options).toMatchObject({
    schedule: { kind: 'linear', warmupSteps: 2 },
    best: { metric: 'eval/loss', greaterIsBetter: false },
  });
  const second = await train({ resumeFrom: join(folder, 'r', 'step-2'), reportTo: 'none' });
  expect(second.steps).toEqual([3, 4]);
  expect(second.weights).toEqual(first.weights);
});

it('reads metric names as transformers writes them', () => {
  expect(['eval_loss', 'eval/loss', 'loss', 'eval_accuracy'].map(evalName)).toEqual([
    'eval/loss',
    'eval/loss',
    'eval/loss',
    'eval/accuracy',
  ]);
});
