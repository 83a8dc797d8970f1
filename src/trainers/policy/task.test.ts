import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { MetricSums } from '../../algorithms/index.ts';
import { packedTokens } from '../../models/decoder/responses.ts';
import { loadModel, type Model, Sampler } from '../../models/index.ts';
import { AdamW } from '../../nn/index.ts';
import { rewardFunction } from '../../rewards/index.ts';
import { minibatches } from '../../rollouts/batches.ts';
import { ListPrompts } from '../../rollouts/dataset-prompts.ts';
import { type PolicyPrompt, PromptWriter } from '../../rollouts/prompts.ts';
import type { Rollout } from '../../rollouts/rollout.ts';
import { RewardShaper } from '../../rollouts/shaping.ts';
import { TaskPrompts, taskEvalPrompts } from '../../rollouts/task-prompts.ts';
import { resolveConfig } from '../../runs/index.ts';
import { scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import type { BatchMetrics, Update } from '../loop/task.ts';
import { algorithmOf } from './algorithm-options.ts';
import { policySchema } from './config.ts';
import { PolicyTask } from './task.ts';

let folder = '';
let model: Model;
let tokenizer: Tokenizer;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'attune-policy-task-'));
  await tinyModel(folder);
  model = await loadModel(folder);
  model.decoder.requiresGrad_();
  tokenizer = await Tokenizer.load(folder);
});
afterAll(() => {
  model.dispose();
  rmSync(folder, { recursive: true });
});

function prompts(...texts: string[]): PolicyPrompt[] {
  const writer = new PromptWriter(tokenizer, { format: 'raw' });
  return texts.map((text, i) => writer.write(i, text) as PolicyPrompt);
}

async function firstUpdate(algorithm: string) {
  const { config } = resolveConfig(policySchema, {
    flags: { algorithm, groupSize: 4, batchSize: 2, gradAccum: 1, maxNewTokens: 5, klCoef: undefined },
  });
  using sampler = new Sampler(model);
  const optimizer = new AdamW(model.trainable(), { lr: 0 });
  const task = new PolicyTask({
    config,
    ...algorithmOf({ ...config, ...(algorithm === 'grpo' ? { klCoef: 0.1 } : {}) }),
    model,
    tokenizer,
    sampler,
    reference: { use: (body) => body(model) },
    critic: null,
    prompts: new ListPrompts(prompts('good bad yes no good bad yes no red', 'no yes bad good no yes bad good blue'), 1),
    scorer: rewardFunction((items) => items.map(({ response }) => response.length)),
    optimizer,
    plannedSteps: { maxSteps: 1, prompts: 0 },
  });
  const asked: { rollouts: Rollout[]; backward: Backward }[] = [];
  const update: Update = async (batches, backward) => {
    asked.push({ rollouts: batches.flat() as Rollout[], backward: backward as unknown as Backward });
    return {};
  };
  await task.step(1, { update, wholeWeights: async () => {} });
  return { ...(asked[0] as (typeof asked)[number]), optimizer };
}

type Backward = (rollouts: Rollout[]) => BatchMetrics;

function gradients(optimizer: AdamW, parts: Rollout[][], backward: Backward): number[] {
  optimizer.zeroGrad();
  for (const part of parts) scope(() => void backward(part));
  const found = optimizer.parameters.flatMap((parameter) => parameter.grad?.numbers() ?? []);
  optimizer.zeroGrad();
  return found;
}

describe('a step', () => {
  it.each(['grpo', 'dapo', 'gspo', 'rloo'])('%s has one gradient, in any order and split', async (algorithm) => {
    const { rollouts, backward, optimizer } = await firstUpdate(algorithm);
    const tokens = rollouts.reduce((sum, { ids }) => sum + ids.length, 0);
    expect(packedTokens(rollouts, model.decoder), 'prompts that a group shares').toBeLessThan(0.7 * tokens);
    const whole = gradients(optimizer, [rollouts], backward);
    expect(Math.hypot(...whole.slice(0, 5000))).toBeGreaterThan(1e-4);
    const mixed = [rollouts[5], rollouts[0], rollouts[3]] as Rollout[];
    const others = rollouts.filter((rollout) => !mixed.includes(rollout)).reverse();
    for (const split of [[[...rollouts].reverse()], rollouts.map((one) => [one]), [mixed, others]]) {
      const again = gradients(optimizer, split, backward);
      const worst = again.reduce((most, value, i) => Math.max(most, Math.abs(value - (whole[i] as number))), 0);
      expect(worst).toBeLessThan(2e-6);
    }
    optimizer.dispose();
  });

  it('gives each response the log-probs of its own tokens', async () => {
    const { rollouts, backward, optimizer } = await firstUpdate('grpo');
    // The rollouts' shares of the mean over the update's tokens add up to that mean: here a ratio of 1.
    const sums = new MetricSums();
    for (const rollout of rollouts) scope(() => sums.add(backward([rollout])));
    optimizer.zeroGrad();
    expect(sums.read().ratio_mean).toBeCloseTo(1, 4);
    for (const { lpOld, lpRef, responseIds, ids, promptLength } of rollouts) {
      expect(ids.slice(promptLength)).toEqual(responseIds);
      // the reference is the policy itself here
      for (const [t, value] of lpOld.entries()) expect(lpRef?.[t]).toBeCloseTo(value, 4);
    }
    optimizer.dispose();
  });
});

describe('minibatches', () => {
  it('are a partition that the key decides', () => {
    const items = Array.from({ length: 10 }, (_, i) => i);
    const split = minibatches(items, 3, [1, 2]);
    expect(split.map(({ length }) => length)).toEqual([3, 3, 4]);
    expect(split.flat().sort((a, b) => a - b)).toEqual(items);
    expect(minibatches(items, 3, [1, 2])).toEqual(split);
    expect(minibatches(items, 3, [1, 3])).not.toEqual(split);
    expect(minibatches(items, 1, [1])).toEqual([items]);
  });
});

describe('rewards', () => {
  const rollout = (score: number, tokens: number, ended = true) =>
    ({ score, ended, responseIds: new Int32Array(tokens), reward: 0 }) as Rollout;
  const shaped = (rollouts: Rollout[], shaper: RewardShaper) => {
    shaper.shape(rollouts);
    return rollouts.map(({ reward }) => reward);
  };

  it('are lowered where a response did not end or ran long', () => {
    const shaper = new RewardShaper({ normalization: 'none', eosPenalty: 1, overlongRamp: 0.2, maxNewTokens: 100 });
    expect(shaped([rollout(1, 50), rollout(1, 90), rollout(1, 100, false)], shaper)).toEqual([1, 0.5, -1]);
  });

  it('are normalised over the run so far, across a resume', () => {
    const options = { normalization: 'running', eosPenalty: 0, overlongRamp: 0, maxNewTokens: 9 } as const;
    const one = new RewardShaper(options);
    shaped([rollout(1, 1), rollout(2, 1)], one);
    const two = new RewardShaper(options);
    two.restore(JSON.parse(JSON.stringify(one.state())));
    // mean 10/4 and unbiased std of 1, 2, 3, 4
    const [third, fourth] = shaped([rollout(3, 1), rollout(4, 1)], two);
    expect(third).toBeCloseTo(0.5 / Math.sqrt(5 / 3), 6);
    expect(fourth).toBeCloseTo(1.5 / Math.sqrt(5 / 3), 6);
  });
});

describe('prompts', () => {
  it('go on after a resume with the very next one, in a new order every epoch', () => {
    const all = prompts('red', 'blue', 'yes', 'no');
    const one = new ListPrompts(all, 7);
    const taken = one.take(6).map(({ index }) => index);
    expect([...taken.slice(0, 4)].sort()).toEqual([0, 1, 2, 3]);
    const two = new ListPrompts(all, 7);
    two.restore(one.state());
    expect(two.take(2)).toEqual(one.take(2));
    expect(two.epoch).toBe(1);
  });

  it('of the same tasks have one fingerprint, whatever their order and the unit of their weights', () => {
    const writer = new PromptWriter(tokenizer);
    const print = (tasks: string) => new TaskPrompts(writer, { tasks, seed: 1 }).fingerprint;
    for (const [tasks, same] of [
      ['gcd*0.1,lcm*0.2,chain_sum*0.3', 'chain_sum*0.3,lcm*0.2,gcd*0.1'],
      ['gcd*1,lcm*3,chain_sum*7', 'gcd*0.1,lcm*0.3,chain_sum*0.7'],
      ['gcd:1,gcd:2', 'gcd:2,gcd:1'],
    ] as const)
      expect(print(tasks)).toBe(print(same));
    expect(print('gcd:1,gcd:2')).not.toBe(print('gcd:1,gcd:3'));
    expect(print('gcd,lcm*1.001')).not.toBe(print('gcd,lcm'));
  });

  it('of tasks never meet the evaluation’s, and get harder with success', () => {
    const writer = new PromptWriter(tokenizer);
    const held = new Set(taskEvalPrompts(writer, { tasks: 'chain_sum:1', seed: 1, count: 15 }).map(({ text }) => text));
    const stream = new TaskPrompts(writer, { tasks: 'chain_sum:1-3', seed: 1, curriculum: { up: 0.8, down: 0.2 } });
    const first = stream.take(40);
    expect(held.size).toBe(15);
    expect(first.filter(({ text }) => held.has(text))).toEqual([]);
    expect(new Set(first.map(({ example }) => example?.difficulty))).toEqual(new Set([1]));
    stream.learn(
      first,
      first.map(() => 0.9),
    );
    const harder = stream.take(10);
    expect(new Set(harder.map(({ example }) => example?.difficulty))).toEqual(new Set([2]));
    expect(stream.metrics()).toEqual({ level_chain_sum: 2 });
    stream.learn(
      harder,
      harder.map(() => 0),
    );
    expect(stream.metrics()).toEqual({ level_chain_sum: 1 });
  });
});
