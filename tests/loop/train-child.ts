/** Trains the small task to its end, resuming whatever an earlier life left: the victim of kill.test.ts. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { findCheckpoint, listCheckpoints } from '../../src/runs/checkpoints.ts';
import { createRun } from '../../src/runs/run.ts';
import { setThreads } from '../../src/tensor/index.ts';
import { trainLoop } from '../../src/trainers/loop/loop.ts';
import { mlpTask } from './mlp-task.ts';

const [folder = '', totalSteps = '100'] = process.argv.slice(2);
setThreads(1);
const run = join(folder, 'run');
const common = {
  command: 'test',
  outputDir: folder,
  config: { steps: totalSteps },
  reportTo: ['tensorboard'],
  curves: false,
};
const found = listCheckpoints(run).length > 0 ? await findCheckpoint(run) : undefined;
const resume = found ? { run, step: found.step } : existsSync(run) ? { run, step: 0 } : undefined;
const open = await createRun({ ...common, runName: 'run', resume });
const rollouts = await open.rollouts();

const task = mlpTask({
  totalSteps: Number(totalSteps),
  microBatch: 4,
  onStep: (step) =>
    rollouts.add([
      {
        step,
        epoch: 0,
        promptIndex: step,
        rolloutIndex: 0,
        prompt: 'p',
        completion: `c${step}`,
        reward: step,
        advantage: 0,
      },
    ]),
});
const options = {
  run: open,
  lr: 0.01,
  schedule: { kind: 'cosine', warmupSteps: 5 } as const,
  maxGradNorm: 1,
  evalSteps: 4,
  saveSteps: 3,
  saveTotalLimit: 2,
  best: { metric: 'eval/loss' },
  resumeFrom: found?.path,
};
for await (const step of trainLoop(task, options)) process.stdout.write(`${step.step}\n`);
