import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { setThreads } from '../../src/tensor/index.ts';
import { tinyModel } from '../support/tiny-model.ts';
import { spawnRanks } from './spawn.ts';
import { type Job, runJobs } from './trainings.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-resume-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** A training, and what it needs to have eight steps. */
const chains: Record<string, object> = {
  sft: { epochs: 20 },
  'sft with a teacher': { epochs: 20 },
  'policy ppo': { batchSize: 2 },
  'policy opd': { batchSize: 2 },
};

const jobsOf = (model: string, runName: string, maxSteps: number, config: object = {}): Job[] =>
  Object.entries(chains).map(([training, more]) => {
    const output = join(folder, training.replaceAll(' ', '-'));
    const steady = { exact: true, saveSteps: 2, evalSteps: 4, maxGradNorm: 0.5, ...more };
    const from = 'resume' in config ? { resumeFrom: join(output, runName), runName: undefined } : { runName };
    const { resume: _, ...own } = config as { resume?: true };
    return { label: training, training, model, output, config: { ...steady, maxSteps, ...from, ...own } };
  });

it('goes on with 4, 2, 1 and 4 ranks, sharded in other ways, to the bytes of a run on one', async () => {
  const model = await tinyModel(join(folder, 'model'));
  await tinyModel(join(folder, 'teacher'), { seed: 2, layers: 1 });
  setThreads(1);
  await runJobs(jobsOf(model, 'straight', 8));
  const path = join(folder, 'jobs.json');
  for (const [ranks, steps, shard] of [
    [4, 2, 'full'],
    [2, 4, 'optimizer'],
    [1, 6, 'none'],
    [4, 8, 'full'],
  ] as const) {
    const jobs = jobsOf(model, 'chain', steps, { shard, ...(steps === 2 ? {} : { resume: true }) });
    writeFileSync(path, JSON.stringify(jobs));
    if (ranks === 1) await runJobs(jobs);
    else await spawnRanks(ranks, [join(import.meta.dirname, 'rank.ts'), path]);
  }
  // Every checkpoint on the way, and the end, do not tell how many ranks wrote them.
  for (const training of Object.keys(chains)) {
    const output = join(folder, training.replaceAll(' ', '-'));
    for (const step of ['step-2', 'step-4', 'step-6', 'step-8']) {
      for (const file of ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json', 'config.json']) {
        const [one, many] = ['straight', 'chain'].map((name) => readFileSync(join(output, name, step, file)));
        expect(many?.equals(one as Buffer), `${training}: ${step}/${file}`).toBe(true);
      }
    }
  }
}, 900_000);
