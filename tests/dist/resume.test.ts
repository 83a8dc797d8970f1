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

it.each([
  ['sft', { epochs: 20 }],
  ['policy ppo', { batchSize: 2 }],
])(
  '%s goes on with 4, 2, 1 and 4 ranks, sharded in other ways, to the bytes of a run on one',
  async (training, more) => {
    const model = await tinyModel(join(folder, 'model'));
    const output = join(folder, training.replaceAll(' ', '-'));
    const steady = {
      exact: true,
      saveSteps: 2,
      evalSteps: 4,
      maxGradNorm: 0.5,
      ...more,
    };
    setThreads(1);
    const job = (runName: string, maxSteps: number, config: object = {}): Job => ({
      ...{ label: runName, training, model, output, config: { ...steady, runName, maxSteps, ...config } },
    });
    await runJobs([job('straight', 8)]);
    const path = join(folder, 'job.json');
    const run = join(output, 'chain');
    for (const [ranks, steps, shard] of [
      [4, 2, 'full'],
      [2, 4, 'optimizer'],
      [1, 6, 'none'],
      [4, 8, 'full'],
    ] as const) {
      const next = job('chain', steps, { shard, ...(steps === 2 ? {} : { resumeFrom: run, runName: undefined }) });
      writeFileSync(path, JSON.stringify([next]));
      if (ranks === 1) await runJobs([next]);
      else await spawnRanks(ranks, [join(import.meta.dirname, 'rank.ts'), path]);
    }
    // Every checkpoint on the way, and the end, do not tell how many ranks wrote them.
    for (const step of ['step-2', 'step-4', 'step-6', 'step-8']) {
      for (const file of ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json', 'config.json']) {
        const [one, many] = ['straight', 'chain'].map((name) => readFileSync(join(output, name, step, file)));
        expect(many?.equals(one as Buffer), `${step}/${file}`).toBe(true);
      }
    }
  },
  300_000,
);
