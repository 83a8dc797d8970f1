/** Trains a policy to its end, resuming whatever an earlier life left: the victim of kill-policy.test.ts. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { listCheckpoints } from '../../src/runs/checkpoints.ts';
import { setThreads } from '../../src/tensor/index.ts';
import type { PolicyInput } from '../../src/trainers/policy/config.ts';
import { trainPolicy } from '../../src/trainers/policy/policy.ts';

const [model = '', outputDir = '', maxSteps = '20'] = process.argv.slice(2);
setThreads(1);
const folder = join(outputDir, 'run');
const begun = listCheckpoints(folder).length > 0;
if (!begun) rmSync(folder, { recursive: true, force: true });

// A critic, a curriculum, an adaptive KL and a running mean of scores: all of it has to come back.
const config: PolicyInput = {
  ...{ model, task: 'chain_sum:1-2', curriculum: true, algorithm: 'ppo', ppoEpochs: 2, nMinibatches: 2 },
  ...{ adaptiveKl: true, klTarget: 0.01, rewardNormalization: 'running', lr: 0.003, maxSteps: Number(maxSteps) },
  ...{ batchSize: 2, gradAccum: 1, groupSize: 4, maxNewTokens: 6, evalSteps: 3, evalNumPrompts: 2, evalSamples: 2 },
  ...{ saveTokens: true, saveSteps: 2, saveTotalLimit: 2, outputDir, reportTo: ['tensorboard'] },
  ...(begun ? { resumeFrom: folder } : { runName: 'run' }),
};
using run = await trainPolicy(config, { run: { curves: false } }).open();
for await (const { step } of run) process.stdout.write(`${step}\n`);
