/**
 * Policy training in an environment: every algorithm runs, resumes exactly, and stores rollouts that can be read and
 * replayed.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rolloutsOf, steady, trained } from '../../../tests/support/policy-runs.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { evenTurns, turnsModel } from '../../../tests/support/turns.ts';
import { policyAlgorithms } from '../../algorithms/index.ts';
import { liveTensors, setThreads } from '../../tensor/index.ts';
import type { PolicyInput } from './config.ts';
import { policyPlan } from './plan.ts';
import { type PolicyTrainerOptions, trainPolicy } from './policy.ts';
import { replayStep } from './replay.ts';
import { whatIf } from './what-if.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-episodes-'));
let [model, teacher] = ['', ''];
beforeAll(async () => {
  setThreads(1);
  model = await turnsModel(join(folder, 'model'));
  teacher = await turnsModel(join(folder, 'teacher'), { seed: 2, layers: 1 });
});
afterAll(() => rmSync(folder, { recursive: true }));

type Config = Omit<Partial<PolicyInput>, 'env'> & { env?: Parameters<typeof trainPolicy>[0]['env'] };

let runs = 0;
function start(config: Config, options: PolicyTrainerOptions = {}) {
  const small = { maxNewTokens: 120, groupSize: 4, batchSize: 3, gradAccum: 1, lr: 0.01, evalSteps: -1, saveSteps: -1 };
  const fresh = { model, env: evenTurns, outputDir: join(folder, 'runs'), runName: `run-${runs++}`, ...small };
  const given = config.resumeFrom === undefined ? fresh : { env: evenTurns };
  const quiet = { reportTo: [], saveModel: false, lrSchedule: 'constant' as const };
  return trainPolicy(
    { ...given, ...(config.resumeFrom === undefined ? quiet : {}), ...config },
    { run: { curves: false }, ...options },
  ).open();
}

const train = (config: Config, options: PolicyTrainerOptions = {}) => trained(start(config, options));

it.each(policyAlgorithms)(
  '$name trains on episodes that the sampler and the trainer agree on',
  async ({ name: algorithm, needsTeacher }) => {
    const { metrics } = await train({ algorithm, maxSteps: 1, ...(needsTeacher ? { teacher } : {}) });
    for (const row of metrics) {
      expect(row['train/sampler_gap_max'] ?? 0).toBeLessThan(1e-4);
      expect(row['train/turns']).toBeGreaterThan(1);
      expect(Object.keys(row)).toEqual(
        expect.arrayContaining(['train/reward_even', 'train/accuracy', 'train/episodes_done']),
      );
    }
  },
);

it('learns what the environment rewards', async () => {
  const { metrics } = await train({
    algorithm: 'rloo',
    maxSteps: 20,
    batchSize: 4,
    groupSize: 8,
    lr: 0.02,
    eosPenalty: 0,
    klCoef: 0,
  });
  const mean = (rows: typeof metrics) =>
    rows.reduce((sum, row) => sum + (row['train/accuracy'] as number), 0) / rows.length;
  expect(mean(metrics.slice(0, 3))).toBeLessThan(0.5);
  expect(mean(metrics.slice(-3))).toBeGreaterThan(0.9);
});

it('leaves no tensor behind, from step to step and at the end', async () => {
  const before = await settledTensors();
  const counts: number[] = [];
  using run = await start({ maxSteps: 6, env: [{ environment: evenTurns, difficulty: [1, 2] }], lora: true, loraR: 2 });
  for await (const _ of run) counts.push(liveTensors());
  expect(new Set(counts.slice(2)).size).toBe(1);
  run.dispose();
  expect(liveTensors()).toBe(before);
});

describe('exactness', () => {
  const eventful: Config = {
    env: [{ environment: evenTurns, difficulty: [1, 2] }],
    ...{ algorithm: 'ppo', ppoEpochs: 2, nMinibatches: 2, adaptiveKl: true, klTarget: 0.01 },
    ...{ curriculum: true, curriculumUp: 0.3, curriculumDown: 0.1, rewardNormalization: 'running' },
    ...{ saveTokens: true, saveModel: true, evalSteps: 2, evalNumPrompts: 3, evalSamples: 2, maxSteps: 4, lr: 0.003 },
  };

  it('stops and goes on as if nothing had happened, turns included', async () => {
    const whole = await train({ ...eventful, runName: 'whole', saveSteps: 3 });
    const stopped = await start({ ...eventful, runName: 'stopped' });
    for await (const { step } of stopped) if (step === 2) break;
    stopped.dispose();
    const resumed = await train({ resumeFrom: stopped.folder, env: eventful.env });
    expect(steady(resumed.metrics)).toEqual(steady(whole.metrics.slice(2)));
    expect(rolloutsOf(stopped.folder)).toEqual(rolloutsOf(whole.folder));
    const weights = (run: string) => readFileSync(join(run, 'final', 'model.safetensors'));
    expect(weights(stopped.folder).equals(weights(whole.folder))).toBe(true);
    expect(whole.metrics.at(-1)).toMatchObject({
      'eval/turns': expect.any(Number),
      'eval/pass_at_2': expect.any(Number),
    });

    // The stored rollouts are exactly those trained on.
    const { rows, held } = rolloutsOf(whole.folder);
    for (const { completion, tokens, episode } of rows) {
      const { ids, spans } = tokens?.sequence ?? { ids: new Int32Array(), spans: new Int32Array() };
      const start = tokens?.promptIds.length ?? 0;
      const own: number[] = [];
      for (let i = 0; i < spans.length; i += 2)
        own.push(...ids.slice((spans[i] as number) - start, (spans[i + 1] as number) - start));
      expect(own).toEqual(Array.from(tokens?.completionIds ?? []));
      expect(tokens?.logprobs).toHaveLength(own.length);
      const said = episode?.turns.map(({ role, content }) => `${role}: ${content}`);
      expect(completion).toBe(said?.join('\n'));
      const turnTokens = episode?.turns.reduce((sum, turn) => sum + (turn.tokens ?? 0), 0);
      expect(turnTokens).toBe(own.length);
    }
    expect(held.every(({ episode }) => episode !== undefined)).toBe(true);
    for (const step of [1, 4]) expect(replayStep(whole.folder, step)).toMatchObject({ agrees: true });
    // Under the weights that sampled it every ratio is 1, which shows that the checkpoint reads the tokens the policy
    // read.
    const asked = await whatIf(whole.folder, { step: 4, checkpoint: 'step-3' });
    for (const { ratio } of asked.rollouts) for (const value of ratio) expect(Math.abs(value - 1)).toBeLessThan(1e-3);
  });

  it('does not depend on how a step is split into micro-batches', async () => {
    for (const algorithm of ['grpo', 'ppo']) {
      const options = { algorithm, maxSteps: 1, ...(algorithm === 'ppo' ? { ppoEpochs: 1 } : {}) };
      const one = await train(options);
      const many = await train({ ...options, microBatchTokens: 60 });
      for (const name of ['loss', 'grad_norm', 'entropy', 'ratio_max'])
        expect(many.metrics[0]?.[`train/${name}`]).toBeCloseTo(one.metrics[0]?.[`train/${name}`] as number, 5);
    }
  });
});

describe('an environment of a module', () => {
  const module = (name: string, step: string) => {
    const path = join(folder, `${name}.mjs`);
    writeFileSync(
      path,
      `export default { name: '${name}', start: ({ random }) => ({ messages: 'red ' + random.int(0, 1e6), step(response, { turn }) { ${step} } }) };`,
    );
    return path;
  };

  it('that fails now and then ends its own episodes alone, where that is asked for', async () => {
    const env = module(
      'failing',
      "if (response.length % 2 === 1) throw new Error('odd'); return { observation: 'no', reward: 1, done: turn > 1 };",
    );
    await expect(train({ env, maxSteps: 1 })).rejects.toThrow(/The environment failing failed at turn 1.*odd/);
    const failures: string[] = [];
    const { metrics } = await train(
      { env, maxSteps: 1, onRewardError: 'score' },
      { onRewardFailure: (error) => failures.push(error.message) },
    );
    expect(metrics[0]?.['train/episodes_failed']).toBeGreaterThan(0);
    expect(failures.length / 12).toBeCloseTo(metrics[0]?.['train/episodes_failed'] as number);
  });

  it('that hangs or returns nonsense is told in words', async () => {
    const hangs = module('hangs', 'for (;;);');
    await expect(train({ env: hangs, maxSteps: 1, toolTimeout: 0.3 })).rejects.toThrow(
      /hangs took longer than 0\.3 s for a step \(--tool-timeout\)/,
    );
    const odd = module('odd', "return { reward: 'much', done: true };");
    await expect(train({ env: odd, maxSteps: 1, onRewardError: 'score' })).rejects.toThrow(/gave the reward "much"/);
  });
});

it('refuses what does not go with an environment', async () => {
  await expect(start({}, { rewards: [() => [1]] })).rejects.toThrow(/The environment gives the reward \(--env\)/);
  await expect(start({ env: 'guess', task: 'gcd:1' })).rejects.toThrow(/leave --task out/);
  await expect(start({ maxNewTokens: 600 })).rejects.toThrow(/--max-new-tokens 600/);
  await expect(start({ curriculum: true })).rejects.toThrow(/one difficulty/);
});

it('plans a run with its episodes, and finds an environment that cannot be played', async () => {
  const { policySchema } = await import('./config.ts');
  const config = (more: object) => policySchema.parse({ model, maxNewTokens: 100, evalNumPrompts: 4, ...more });
  expect(await policyPlan(config({ env: 'guess:1-2', maxTurns: 4 }))).toMatch(
    /prompts: endless, 4 held out[\s\S]*episodes: guess:1-2, up to 4 turns/,
  );
  await expect(policyPlan(config({ env: './nowhere.ts' }))).rejects.toThrow(/no environment module/);
});
