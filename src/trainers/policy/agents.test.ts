/** Training an agent that calls the policy through an HTTP client: it resumes exactly, and every call is stored. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { callPolicy, talker } from '../../../tests/support/agents.ts';
import { rolloutsOf, steady, trained } from '../../../tests/support/policy-runs.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { isEven, turnsModel } from '../../../tests/support/turns.ts';
import { type Agent, defineAgent } from '../../environments/index.ts';
import { openRun } from '../../runs/index.ts';
import { liveTensors, setThreads } from '../../tensor/index.ts';
import { type PolicyInput, policySchema } from './config.ts';
import { policyPlan } from './plan.ts';
import { type PolicyTrainerOptions, trainPolicy } from './policy.ts';
import { replayStep } from './replay.ts';
import { whatIf } from './what-if.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-policy-agents-'));
let model = '';
beforeAll(async () => {
  setThreads(1);
  model = await turnsModel(join(folder, 'model'));
});
afterAll(() => rmSync(folder, { recursive: true }));

type Config = Omit<Partial<PolicyInput>, 'agent'> & { agent?: Parameters<typeof trainPolicy>[0]['agent'] };

let runs = 0;
function start(config: Config, options: PolicyTrainerOptions = {}) {
  const small = { maxNewTokens: 60, groupSize: 4, batchSize: 2, gradAccum: 1, lr: 0.01, evalSteps: -1, saveSteps: -1 };
  const quiet = { reportTo: [], saveModel: false, lrSchedule: 'constant' as const };
  const fresh = { model, outputDir: join(folder, 'runs'), runName: `run-${runs++}`, ...small, ...quiet };
  const given = config.resumeFrom === undefined ? fresh : {};
  return trainPolicy({ ...given, agent: talker, ...config }, { run: { curves: false }, ...options }).open();
}

const train = (config: Config, options: PolicyTrainerOptions = {}) => trained(start(config, options));

it.each(['grpo', 'ppo'])('%s trains on calls that the sampler and the trainer agree on', async (algorithm) => {
  const { metrics } = await train({ algorithm, maxSteps: 1 });
  const [row = {}] = metrics;
  expect(row['train/sampler_gap_max'] ?? 0).toBeLessThan(1e-4);
  expect(row['train/turns']).toBe(4);
  expect(row['train/conversations']).toBe(2);
});

it('goes on behind an answer that a stop text or max_tokens cut, with the tokens that were sampled', async () => {
  const agent = defineAgent({
    name: 'stopper',
    start: ({ random }) => random.int(0, 1e6),
    async run(asked) {
      const messages = [{ role: 'user', content: String(asked.problem) }];
      for (const more of [{ stop: ['e', 'a'] }, { max_tokens: 2 }, {}]) {
        const { content } = await callPolicy(asked, messages, more);
        if ('stop' in more && /[ea]/.test(content)) throw new Error('not cut');
        messages.push({ role: 'assistant', content }, { role: 'user', content: 'no' });
      }
      return { reward: 1 };
    },
  });
  const { metrics } = await train({ agent, maxSteps: 1, maxNewTokens: 200 });
  expect(metrics[0]).toMatchObject({ 'train/conversations': 1, 'train/turns': expect.any(Number) });
  expect(metrics[0]?.['train/turns']).toBeGreaterThan(2);
  expect(metrics[0]?.['train/sampler_gap_max'] ?? 0).toBeLessThan(1e-4);
});

it('learns what the agent rewards', async () => {
  const agent = defineAgent({
    name: 'even',
    start: ({ random }) => `red ${random.int(0, 1e6)}`,
    run: async (asked) => ({
      reward: Number(isEven((await callPolicy(asked, [{ role: 'user', content: asked.problem }])).content)),
    }),
  });
  const { metrics } = await train({
    ...{ agent, algorithm: 'rloo', maxSteps: 12, batchSize: 3, groupSize: 8, lr: 0.04, eosPenalty: 0, klCoef: 0 },
    maxNewTokens: 16,
  });
  const rewards = metrics.map((row) => row['train/reward'] as number);
  const mean = (of: number[]) => of.reduce((sum, each) => sum + each, 0) / of.length;
  expect(mean(rewards.slice(0, 2))).toBeLessThan(0.7);
  expect(mean(rewards.slice(-3))).toBeGreaterThan(0.9);
});

it('leaves no tensor behind', async () => {
  const before = await settledTensors();
  const counts: number[] = [];
  using run = await start({ maxSteps: 4, maxNewTokens: 30 });
  for await (const _ of run) counts.push(liveTensors());
  expect(new Set(counts.slice(1)).size).toBe(1);
  run.dispose();
  expect(liveTensors()).toBe(before);
});

it('stops and goes on as if nothing had happened, and stores every call', async () => {
  const eventful: Config = {
    ...{ algorithm: 'ppo', ppoEpochs: 2, nMinibatches: 2, saveTokens: true, saveModel: true },
    ...{ evalSteps: 2, evalNumPrompts: 2, evalSamples: 1, maxSteps: 4, lr: 0.003, maxNewTokens: 150 },
  };
  const whole = await train({ ...eventful, runName: 'whole', saveSteps: 3 });
  const stopped = await start({ ...eventful, runName: 'stopped' });
  for await (const { step } of stopped) if (step === 2) break;
  stopped.dispose();
  const resumed = await train({ resumeFrom: stopped.folder });
  expect(steady(resumed.metrics)).toEqual(steady(whole.metrics.slice(2)));
  expect(rolloutsOf(stopped.folder)).toEqual(rolloutsOf(whole.folder));
  const weights = (run: string) => readFileSync(join(run, 'final', 'model.safetensors'));
  expect(weights(stopped.folder).equals(weights(whole.folder))).toBe(true);

  const { rows, held } = rolloutsOf(whole.folder);
  expect(rows.length).toBe(4 * 8);
  for (const { tokens, episode } of rows) {
    const { ids, spans, starts } = tokens?.sequence ?? {};
    expect(starts).toHaveLength(2);
    const own: number[] = [];
    for (let i = 0; i < (spans?.length ?? 0); i += 2) own.push(...(ids?.slice(spans?.[i], spans?.[i + 1]) ?? []));
    expect(own).toEqual(Array.from(tokens?.completionIds ?? []));
    expect(tokens?.logprobs).toHaveLength(own.length);
    expect(episode?.turns.map(({ role }) => role)).toEqual(
      'system user assistant user assistant conversation user assistant conversation user assistant'.split(' '),
    );
    expect(episode?.turns.reduce((sum, turn) => sum + (turn.tokens ?? 0), 0)).toBe(own.length);
  }
  expect(held.map(({ episode }) => episode?.end).filter((end) => end !== 'done' && end !== 'length')).toEqual([]);
  for (const step of [1, 4]) expect(replayStep(whole.folder, step)).toMatchObject({ agrees: true });
  const asked = await whatIf(whole.folder, { step: 4, checkpoint: 'step-3' });
  for (const { ratio } of asked.rollouts) for (const value of ratio) expect(Math.abs(value - 1)).toBeLessThan(1e-3);
});

it('evaluates the starting model at the start alone, also where no row of metrics was written until the run stopped', async () => {
  const few: Config = {
    maxSteps: 3,
    evalSteps: 3,
    evalNumPrompts: 1,
    logSteps: 100,
    maxNewTokens: 30,
    saveModel: true,
  };
  const stopped = await start({ ...few, evalAtStart: false });
  for await (const { step } of stopped) if (step === 1) break;
  stopped.dispose();
  const { folder: run } = await train({ resumeFrom: stopped.folder, evalAtStart: true });
  expect(openRun(run).history()['eval/reward']?.step).toEqual([3]);
});

describe('an agent that', () => {
  const failing = (name: string, run: Agent<string>['run']) =>
    defineAgent({ name, start: ({ random }) => `red ${random.int(0, 1e6)}`, run });

  it('throws now and then stops the run, or loses its own episodes alone', async () => {
    const agent = failing('thrower', async (asked) => {
      const { content } = await callPolicy(asked, [{ role: 'user', content: asked.problem }]);
      if (content.length % 2 === 1) throw new Error('odd');
      return { reward: content.length };
    });
    await expect(train({ agent, maxSteps: 1 })).rejects.toThrow(
      /The agent thrower failed \(seed \d+, difficulty 1\): odd/,
    );
    const failures: string[] = [];
    const { metrics } = await train(
      { agent, maxSteps: 1, onRewardError: 'score' },
      { onRewardFailure: (error) => failures.push(error.message) },
    );
    expect(failures.length).toBeGreaterThan(0);
    expect(failures.length / 8).toBeCloseTo(metrics[0]?.['train/episodes_failed'] as number);
  });

  it('never calls, or fails before its first call, is told, or is an episode without tokens', async () => {
    const idle = failing('idle', async () => ({ reward: 1 }));
    await expect(train({ agent: idle, maxSteps: 1 })).rejects.toThrow(/idle ended without a call to the policy/);
    let count = 0;
    const agent = failing('late', async (asked) => {
      if (count++ % 3 === 0) throw new Error('no network');
      await callPolicy(asked, [{ role: 'user', content: 'red' }]);
      return { reward: count };
    });
    for (const algorithm of ['grpo', 'ppo', 'drgrpo'])
      for (const row of (await train({ agent, algorithm, maxSteps: 1, microBatchTokens: 30, onRewardError: 'score' }))
        .metrics) {
        expect(row['train/episodes_failed']).toBeGreaterThan(0);
        expect(Number.isFinite(row['train/loss'])).toBe(true);
      }
  });

  it('breaks its contract is told in words', async () => {
    const odd = failing('odd', async () => ({ reward: 'much' }) as never);
    await expect(train({ agent: odd, maxSteps: 1, onRewardError: 'score' })).rejects.toThrow(
      /A run of the agent odd gave the reward "much"/,
    );
    const nothing = failing('nothing', async () => undefined as never);
    await expect(train({ agent: nothing, maxSteps: 1 })).rejects.toThrow(
      /agent nothing gave undefined: its run must give/,
    );
  });

  it('is a module that loops for ever is ended with its thread', async () => {
    const path = join(folder, 'loops.mjs');
    writeFileSync(path, "export default { name: 'loops', start: ({ seed }) => String(seed), run() { for (;;); } };");
    await expect(train({ agent: path, maxSteps: 1, toolTimeout: 0.3 })).rejects.toThrow(
      /loops took longer than 0\.3 s without a call to the policy \(--tool-timeout/,
    );
  });
});

it('refuses what does not go with an agent, and plans a run', async () => {
  await expect(start({}, { rewards: [() => [1]] })).rejects.toThrow(/The agent gives the reward \(--agent\)/);
  await expect(start({ env: 'guess' })).rejects.toThrow(/leave --env out/);
  await expect(start({ system: 'Be good.' })).rejects.toThrow(/an agent writes all its messages itself/);
  await expect(start({ agent: 'nobody' })).rejects.toThrow(/There is no agent "nobody"/);
  const path = join(folder, 'plain.mjs');
  writeFileSync(path, "export default { name: 'plain', problems: Array.from({ length: 60 }, (_, i) => i), run() {} };");
  const config = (more: object) => policySchema.parse({ model, maxNewTokens: 100, evalNumPrompts: 2, ...more });
  expect(await policyPlan(config({ agent: path, maxTurns: 4 }))).toMatch(
    /prompts: endless, 2 held out[\s\S]*episodes: .*plain\.mjs, up to 4 calls/,
  );
  await expect(policyPlan(config({ agent: './nowhere.ts' }))).rejects.toThrow(/There is no agent module/);
});
