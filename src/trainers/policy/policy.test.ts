import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { policyAlgorithms } from '../../algorithms/index.ts';
import { Sampler } from '../../models/index.ts';
import { loadRewardModel, type RewardItem } from '../../rewards/index.ts';
import { openRun } from '../../runs/index.ts';
import { liveTensors } from '../../tensor/index.ts';
import type { TrainStep } from '../loop/loop.ts';
import type { ProgramConfig } from '../loop/training-run.ts';
import { trainReward } from '../reward/reward.ts';
import type { PolicyInput } from './config.ts';
import { type PolicyTrainerOptions, trainPolicy } from './policy.ts';
import { replayStep } from './replay.ts';
import { checkSamplerGap } from './sampler-gap.ts';

let folder = '';
let model = '';
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'attune-policy-'));
  model = await tinyModel(join(folder, 'model'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const ofRewards = policyAlgorithms.filter(({ needsTeacher }) => !needsTeacher).map(({ name }) => name);
const rows = [{ prompt: 'red' }, { prompt: 'blue' }];
const base: ProgramConfig<PolicyInput> = {
  dataset: rows,
  promptFormat: 'raw',
  maxNewTokens: 2,
  groupSize: 8,
  batchSize: 2,
  gradAccum: 1,
  lr: 0.01,
  lrSchedule: 'constant',
  eosPenalty: 0,
  topP: 1,
  evalSteps: -1,
  saveSteps: -1,
  reportTo: [],
  saveModel: false,
};
/** Right if the last character has an even code: about 3 in 10 answers of a random model. */
const even = (items: readonly RewardItem[]) =>
  items.map(({ response }) => ((response.codePointAt(response.length - 1) ?? 1) % 2 === 0 ? 1 : 0));

let runs = 0;
async function start(config: ProgramConfig<PolicyInput>, options: PolicyTrainerOptions = {}) {
  const runName = config.runName ?? (config.resumeFrom === undefined ? `run-${runs++}` : undefined);
  return trainPolicy(
    { model, outputDir: join(folder, 'runs'), ...base, ...config, runName },
    { rewards: [even], run: { curves: false }, ...options },
  ).open();
}

async function train(config: ProgramConfig<PolicyInput>, options: PolicyTrainerOptions = {}) {
  const steps: TrainStep[] = [];
  using run = await start(config, options);
  for await (const step of run) steps.push(step);
  return { steps, metrics: steps.map((step) => step.metrics), folder: run.folder };
}

/** Trained once for a few steps. The tests need a reward model, not a good one. */
let trainedReward: Promise<string> | undefined;
const rewardModel = () => (trainedReward ??= trainRewardModel());
async function trainRewardModel(): Promise<string> {
  const dataset = rows.map((row) => ({ ...row, chosen: 'It is blue.', rejected: 'no good red 7' }));
  const settings = { batchSize: 2, gradAccum: 1, maxSteps: 1, evalSteps: -1, validationSplit: 0, reportTo: [] };
  using run = await trainReward({ model, dataset, ...settings, outputDir: join(folder, 'rm') }).open();
  await run.finish();
  return join(run.folder, 'final');
}

const last = (values: Record<string, number>[], name: string, count: number) =>
  values.slice(-count).reduce((sum, row) => sum + (row[name] as number), 0) / count;

it('ends a run as failed whose set-up fails after it has begun', async () => {
  const rolloutsDir = join(folder, 'rollouts');
  // SQLite cannot open a database whose WAL file is a folder.
  mkdirSync(join(rolloutsDir, 'broken', 'rollouts.db-wal'), { recursive: true });
  await expect(start({ runName: 'broken', rolloutsDir })).rejects.toThrow(/Cannot write rollouts|rollouts\.db/);
  const { info } = openRun(join(folder, 'runs', 'broken'));
  expect(info).toMatchObject({ status: 'failed', reason: expect.stringContaining('rollouts.db') });
  expect(existsSync(join(folder, 'runs', 'broken', 'run.lock'))).toBe(false);
});

describe('learning', () => {
  // The optimum is known: the last character is always even.
  it.each(ofRewards)('%s reaches the optimum', async (algorithm) => {
    const own = { ppo: { ppoEpochs: 2 }, raft: { lr: 0.03 } }[algorithm];
    const { metrics } = await train({ algorithm, maxSteps: 40, ...own });
    expect(metrics[0]?.['train/score']).toBeLessThan(0.7);
    expect(last(metrics, 'train/score', 5)).toBeGreaterThan(0.9);
  });
});

describe('exactness', () => {
  const timed = /time|seconds|per_second/;
  const steady = (metrics: Record<string, number>[]) =>
    metrics.map((row) => Object.fromEntries(Object.entries(row).filter(([name]) => !timed.test(name))));
  const rolloutsOf = (run: string) => {
    using reader = openRun(run).rollouts();
    return reader.query().map((row) => ({ ...row, tokens: reader.tokens(row.id), parts: reader.parts(row.id) }));
  };
  const weightsOf = (run: string) => readFileSync(join(run, 'final', 'model.safetensors'));

  // Everything a step can depend on: a critic, an adaptive KL, a running mean of scores, a curriculum, minibatches.
  const eventful: ProgramConfig<PolicyInput> = {
    algorithm: 'ppo',
    dataset: undefined,
    task: 'chain_sum:1-2',
    promptFormat: 'chat',
    curriculum: true,
    curriculumUp: 0,
    curriculumDown: 0,
    adaptiveKl: true,
    klTarget: 0.01,
    nMinibatches: 2,
    ppoEpochs: 2,
    rewardNormalization: 'running',
    groupSize: 4,
    saveTokens: true,
    saveModel: true,
    evalSteps: 2,
    evalNumPrompts: 4,
    evalSamples: 2,
    lr: 0.003,
    maxSteps: 4,
  };

  it('stops and goes on as if nothing had happened, rollouts included', async () => {
    const whole = await train({ ...eventful, runName: 'whole' });
    const stopped = await start({ ...eventful, runName: 'stopped' });
    for await (const { step } of stopped) if (step === 2) break;
    stopped.dispose();
    const resumed = await train({ ...eventful, runName: undefined, resumeFrom: stopped.folder });
    expect(resumed.folder).toBe(stopped.folder);
    expect(steady(resumed.metrics)).toEqual(steady(whole.metrics.slice(2)));
    expect(rolloutsOf(stopped.folder)).toEqual(rolloutsOf(whole.folder));
    expect(weightsOf(stopped.folder).equals(weightsOf(whole.folder))).toBe(true);
    expect(whole.metrics.at(-1)).toMatchObject({ 'eval/pass_at_2': expect.any(Number), 'train/updates': 4 });
    expect(whole.metrics.at(-1)?.['train/level_chain_sum']).toBe(2);
  });

  it('breaks off in the middle of sampling, whatever the reason given, and goes on from the step before', async () => {
    const stop = new AbortController();
    const midway: PolicyTrainerOptions['sampler'] = (policy) => {
      const sampler = new Sampler(policy);
      let calls = 0;
      return {
        dispose: () => sampler.dispose(),
        generate(requests, options) {
          if (++calls === 3) stop.abort('SIGINT');
          return sampler.generate(requests, options);
        },
      };
    };
    using run = await start({ maxSteps: 5 }, { sampler: midway, signal: stop.signal });
    expect(await run.finish()).toMatchObject({ ended: 'interrupted', step: 2 });
    const { steps } = await train({ runName: undefined, maxSteps: 3, resumeFrom: run.folder });
    expect(steps.map(({ step }) => step)).toEqual([3]);
  });

  it('does not depend on how a step is split into micro-batches', async () => {
    for (const algorithm of ['grpo', 'ppo', 'drgrpo']) {
      const one = await train({ algorithm, ppoEpochs: 1, maxSteps: 1 });
      const many = await train({ algorithm, ppoEpochs: 1, maxSteps: 1, microBatchTokens: 12 });
      for (const name of ['loss', 'grad_norm', 'entropy', 'ratio_max'])
        expect(many.metrics[0]?.[`train/${name}`]).toBeCloseTo(one.metrics[0]?.[`train/${name}`] as number, 5);
    }
  });

  it('starts each step on-policy: to rounding with the sampler’s log-probs, exactly with the trainer’s', async () => {
    const sampled = await train({ maxSteps: 2 });
    expect(sampled.metrics[1]?.['train/sampler_gap_max']).toBeLessThan(1e-4);
    expect(sampled.metrics[1]?.['train/ratio_max']).toBeCloseTo(1, 4);
    const own = await train({ maxSteps: 2, oldLogprobs: 'trainer' });
    for (const row of own.metrics)
      expect(row).toMatchObject({ 'train/ratio_mean': 1, 'train/ratio_max': 1, 'train/old_kl': 0 });
  });

  it.each([1e25, -1e300, Number.NaN])('refuses rewards that add up to %s', async (reward) => {
    const scorer = {
      name: 'odd',
      score: async (items: readonly unknown[]) => items.map((_, i) => (i === 1 ? reward : 0)),
    };
    await expect(train({ maxSteps: 1 }, { rewards: [scorer] })).rejects.toThrow(`add up to ${reward} for a response`);
  });

  it('learns nothing from groups of equal rewards', async () => {
    const { metrics } = await train(
      { algorithm: 'drgrpo', maxSteps: 2 },
      { rewards: [(items) => items.map(() => 0.3)] },
    );
    for (const row of metrics)
      expect(row).toMatchObject({ 'train/grad_norm': 0, 'train/zero_spread': 1, 'train/advantage_std': 0 });
    const dropped = await train({ algorithm: 'dapo', maxSteps: 1 }, { rewards: [(items) => items.map(() => 0.3)] });
    expect(dropped.metrics[0]).toMatchObject({ 'train/updates': 0, 'train/dropped_share': 1 });
  });

  it('leaves no tensor behind, neither from step to step nor at the end', async () => {
    const verified = {
      ...{ dataset: undefined, task: 'chain_sum:1', promptFormat: 'chat' },
      evalSteps: 2,
      evalNumPrompts: 2,
    };
    const cases: [ProgramConfig<PolicyInput>, PolicyTrainerOptions?][] = [
      [{ algorithm: 'grpo', ...verified, klCoef: 0.1 } as ProgramConfig<PolicyInput>, { rewards: [] }],
      [{ algorithm: 'ppo', ppoEpochs: 2 }],
      [{ algorithm: 'ppo', valueBackbone: 'own' }],
      [{ algorithm: 'grpo', rewardModelPath: await rewardModel() }, { rewards: [] }],
      [{ algorithm: 'grpo', lora: true, klCoef: 0.1 }],
    ];
    for (const [config, options] of cases) {
      const before = await settledTensors();
      const counts: number[] = [];
      using run = await start({ ...config, maxSteps: 5 }, options);
      for await (const _ of run) counts.push(liveTensors());
      expect(new Set(counts.slice(1)).size).toBe(1);
      run.dispose();
      expect(liveTensors()).toBe(before);
    }
  });

  it('frees what it had opened where a run cannot begin', async () => {
    const path = await rewardModel();
    const before = await settledTensors();
    const misnamed = start({ rewardModelPath: path, rewardWeights: ['evne=1'] }, { rewards: [] });
    await expect(misnamed).rejects.toThrow('no reward "evne"');
    await expect(start({ refModel: join(folder, 'none'), klCoef: 0.1 })).rejects.toThrow('none');
    await expect(start({ lora: true, loraTargetModules: ['q_prj'] })).rejects.toThrow('q_prj');
    expect(liveTensors()).toBe(before);
  });

  it('leaves a scorer that the program brings along alive', async () => {
    using scorer = await loadRewardModel(await rewardModel());
    await train({ maxSteps: 1 }, { rewards: [scorer] });
    expect((await scorer.score([{ prompt: 'red', response: '7' }]))[0]).toEqual(expect.any(Number));
  });

  it('stops before the update where the sampler’s log-probs are not the trainer’s', async () => {
    const wrong: PolicyTrainerOptions['sampler'] = (policy) => {
      const sampler = new Sampler(policy);
      return {
        dispose: () => sampler.dispose(),
        generate: async (requests) =>
          (await sampler.generate(requests)).map((group) =>
            group.map((one) => ({ ...one, logprobs: one.logprobs.map((value) => value - 0.01) })),
          ),
      };
    };
    await expect(train({ maxSteps: 1 }, { sampler: wrong })).rejects.toThrow(
      /Step 1: the sampler and the trainer disagree.*mean 1.00e-2 \(allowed 0.001\)/s,
    );
    await train({ maxSteps: 1, maxSamplerGap: 0.02 }, { sampler: wrong });
    const rounding: PolicyTrainerOptions['sampler'] = (policy) => new Sampler(policy, { precision: 'fast' });
    await expect(train({ maxSteps: 1 }, { sampler: rounding })).rejects.toThrow(/training needs the log-probs/);
  });
});

describe('--cache-dtype int8', () => {
  it('widens the sampler’s gap within its bounds, and a resumed run keeps it', async () => {
    const config: ProgramConfig<PolicyInput> = { maxNewTokens: 24, maxSteps: 2, saveSteps: 1 };
    const plain = await train(config);
    const whole = await train({ ...config, cacheDtype: 'int8', runName: 'eight-bits' });
    const gap = (run: typeof plain) => run.metrics[0]?.['train/sampler_gap'] as number;
    expect(gap(plain)).toBeLessThan(1e-5);
    expect(gap(whole)).toBeGreaterThan(1e-5);
    expect(gap(whole)).toBeLessThan(0.05);
    const resumeFrom = join(folder, 'runs/eight-bits/step-1');
    expect((await train({ ...config, resumeFrom })).metrics.at(-1)).toMatchObject({
      'train/sampler_gap': whole.metrics[1]?.['train/sampler_gap'],
    });
    await expect(start({ ...config, resumeFrom, cacheDtype: 'model' })).rejects.toThrow(
      '--cache-dtype model: it was trained with int8',
    );
  });

  it('a sampler that disagrees is stopped, with what to do', () => {
    const gap = { mean: 0.06, max: 0.5 };
    expect(() => checkSamplerGap(gap, 'float32', 3, { cacheDtype: 'int8' })).toThrow(
      /allowed 0.05.*with a cache in int8.*--cache-dtype model/s,
    );
    expect(() => checkSamplerGap({ mean: 0.01, max: 0.5 }, 'float32', 3, { cacheDtype: 'int8' })).not.toThrow();
    expect(() => checkSamplerGap({ mean: 0.01, max: 0.5 }, 'float32', 3)).toThrow(/allowed 0.001/);
  });
});

describe('LoRA', () => {
  it('has the base with adapters off as its reference, and resumes exactly', async () => {
    const config: ProgramConfig<PolicyInput> = { lora: true, loraR: 4, klCoef: 0.1, maxSteps: 4, saveModel: true };
    const whole = await train({ ...config, runName: 'lora-whole' });
    // LoRA's B is 0 at the start, so policy and reference are equal. After a step they differ.
    expect(whole.metrics[0]?.['train/kl']).toBeLessThan(1e-9);
    expect(whole.metrics[3]?.['train/kl']).toBeGreaterThan(1e-6);
    const stopped = await start({ ...config, runName: 'lora-stopped' });
    for await (const { step } of stopped) if (step === 2) break;
    stopped.dispose();
    const resumed = await train({ ...config, runName: undefined, resumeFrom: stopped.folder });
    const losses = (metrics: Record<string, number>[]) => metrics.map((row) => row['train/loss']);
    expect(losses(resumed.metrics)).toEqual(losses(whole.metrics.slice(2)));
    const adapter = (run: string) => readFileSync(join(run, 'final', 'adapter_model.safetensors'));
    expect(adapter(stopped.folder).equals(adapter(whole.folder))).toBe(true);
  });
});

describe('replay', () => {
  it.each(ofRewards)('%s: advantages and losses follow from the database', async (algorithm) => {
    const { folder: run } = await train({ algorithm, maxSteps: 2, saveTokens: true, nMinibatches: 2 });
    for (const step of [1, 2]) {
      const replay = replayStep(run, step);
      expect(replay.losses.map(({ name }) => name)).toContain('policy_loss');
      expect(replay).toMatchObject({ agrees: true, algorithm });
      expect(replay.rollouts.some(({ stored }) => stored !== 0)).toBe(true);
    }
    using database = new DatabaseSync(join(run, 'rollouts.db'));
    database.exec('update rollouts set reward = 1 - reward where id = 1');
    expect(replayStep(run, 1).agrees).toBe(false);
  });
});

describe('what is asked for', () => {
  it('adds up rewards by weight and logs every part', async () => {
    const named = (items: readonly RewardItem[]) => items.map(() => ({ a: 1, b: 2 }));
    const { metrics, folder: run } = await train(
      {
        ...{ maxSteps: 1, dataset: undefined, task: 'chain_sum:1', promptFormat: 'chat' },
        ...{ verifierReward: true, rewardWeights: ['verifier=2', 'named=0.5'] },
      },
      { rewards: [named] },
    );
    const row = metrics[0] as Record<string, number>;
    expect(row['train/score']).toBeCloseTo(2 * (row['train/reward_verifier_answer'] as number) + 0.5 * 3, 6);
    using rollouts = openRun(run).rollouts();
    expect(rollouts.parts(1)).toMatchObject({ 'named/a': 1, 'named/b': 2, correct: expect.any(Number) });
  });

  it('ends the passes over a batch once the policy is far enough from the weights that sampled', async () => {
    const passes = { algorithm: 'ppo', ppoEpochs: 4, maxSteps: 1 } as const;
    expect((await train(passes)).metrics[0]?.['train/updates']).toBe(4);
    // the first update starts at a KL of 0, so the second is the first to exceed the target
    expect((await train({ ...passes, targetKl: 1e-6 })).metrics[0]?.['train/updates']).toBe(2);
  });

  it.each(['int8', 'int4'] as const)('holds reward model and reference in %s', async (type) => {
    const rewardModelPath = await rewardModel();
    const before = await settledTensors();
    const given = { rewardModelPath, klCoef: 0.05, maxSteps: 2 };
    const plain = await train(given, { rewards: [] });
    const quantised = await train({ ...given, rmQuantType: type, refQuantType: type }, { rewards: [] });
    expect(liveTensors()).toBe(before);
    expect(quantised.metrics).toHaveLength(2);
    const first = (name: string) => [plain, quantised].map(({ metrics }) => metrics[0]?.[name] as number);
    // only reference and reward model are quantised: the samples are the same, rewards and KL differ a little
    const [length, sameLength] = first('train/length_mean');
    expect(length).toBeGreaterThan(0);
    expect(sameLength).toBe(length);
    const [score = 0, otherScore = 0] = first('train/score');
    expect(otherScore).not.toBe(score);
    expect(Math.abs(otherScore - score)).toBeLessThan(type === 'int8' ? 1e-3 : 0.1);
    const [kl = 0, otherKl = 0] = first('train/kl');
    expect(Math.abs(kl)).toBeLessThan(1e-6);
    expect(Math.abs(otherKl)).toBeGreaterThan(1e-7);
  });

  it('keeps evaluation prompts out of training', async () => {
    const many = Array.from({ length: 12 }, (_, i) => ({ prompt: `number ${i % 8}` }));
    const { folder: run } = await train({ dataset: many, evalNumPrompts: 3, evalSteps: 1, maxSteps: 6 });
    using rollouts = openRun(run).rollouts();
    const trained = new Set(rollouts.query().map(({ prompt }) => prompt));
    const held = new Set(rollouts.evalQuery().map(({ prompt }) => prompt));
    expect([trained.size, held.size]).toEqual([5, 3]);
    expect([...held].filter((prompt) => trained.has(prompt))).toEqual([]);
  });

  it('says what is wrong', async () => {
    await expect(start({ rmQuantType: 'int8' })).rejects.toThrow('there is no reward model to quantise');
    await expect(start({ refQuantType: 'int4', klCoef: 0 })).rejects.toThrow('there is no reference to quantise');
    await expect(start({ refQuantType: 'int4', klCoef: 0.1, lora: true })).rejects.toThrow("the policy's own base");
    await expect(start({ dataset: undefined })).rejects.toThrow('There are no prompts');
    await expect(start({ algorithm: 'grop' })).rejects.toThrow('Did you mean "grpo"');
    await expect(start({ algorithm: 'grpo', gamma: 0.9 })).rejects.toThrow(/^--gamma has no effect on grpo/);
    await expect(start({}, { rewards: [] })).rejects.toThrow('There is no reward');
    // A function's reward parts are known only after it has scored something.
    await expect(train({ rewardWeights: ['evne=1'], maxSteps: 1 })).rejects.toThrow(
      'given for "evne", but no reward has such a part. Did you mean "even"',
    );
    await expect(start({ rewardModelPath: model }, { rewards: [] })).rejects.toThrow('it has no reward head');
  });
});
