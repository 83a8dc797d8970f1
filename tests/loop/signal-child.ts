/** Trains until a signal comes, as a command does; the subject of signals.test.ts. */
import { setTimeout as sleep } from 'node:timers/promises';
import { onInterrupt } from '../../src/cli/terminal/interrupt.ts';
import { createRun } from '../../src/runs/run.ts';
import { trainLoop } from '../../src/trainers/loop/loop.ts';
import { mlpTask } from './mlp-task.ts';

const [outputDir = '', saveMs = '0'] = process.argv.slice(2);
const run = await createRun({ command: 'test', outputDir, runName: 'run', config: {}, reportTo: [], curves: false });
const task = mlpTask({ totalSteps: 100_000 });
const slow = {
  ...task,
  saveModel: async (folder: string) => {
    process.stdout.write('saving\n');
    await sleep(Number(saveMs));
    await task.saveModel(folder);
  },
};
using interrupt = onInterrupt((name) => process.stdout.write(`${name}\n`));
const loop = trainLoop(slow, { run, lr: 0.01, signal: interrupt.signal });
for (;;) {
  const { done, value } = await loop.next();
  if (done) {
    process.stdout.write(`${JSON.stringify(value)}\n`);
    break;
  }
  if (value.step === 3) process.stdout.write('ready\n');
}
