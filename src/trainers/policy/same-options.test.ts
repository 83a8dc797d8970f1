/** A resumed policy run accepts its original values, also if they were defaults or are now given under an alias. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { saveCheckpoint, trainerStateName } from '../../runs/checkpoints.ts';
import { resolveRun } from '../../runs/resume.ts';
import { policySchema } from './config.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-options-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);
const [run, start, judge, other] = [at('run'), at('start'), at('judge'), at('other')];
const before = { model: start, algorithm: 'drgrpo', kl_coef: 0.1, task: 'gcd', reward_model_path: judge };
const resume = (flags: Record<string, unknown>) => resolveRun(policySchema, { resumeFrom: run, ...flags });

beforeAll(async () => {
  for (const path of [start, judge, other]) mkdirSync(path);
  await saveCheckpoint(run, 'step-5', { step: 5, json: { 'train_config.json': before, [trainerStateName]: {} } });
});

it.each<[string, unknown, unknown]>([
  ['algorithm', 'dr-grpo', 'grpo'],
  ['klEstimator', 'k3', 'k2'],
  ['klTimesRatio', false, true],
  ['rmPrecision', 'exact', 'fast'],
  ['rewardWeights', ['reward_model=1'], ['reward_model=2']],
  ['verifierReward', false, true],
  ['tokenizer', start, other],
])('%s %s is no change, %s is one', async (name, same, changed) => {
  await expect(resume({ [name]: same })).resolves.toMatchObject({ resume: { step: 5 } });
  await expect(resume({ [name]: changed })).rejects.toThrow('cannot change in a resumed run');
});
