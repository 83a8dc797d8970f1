/** The reward module in docs/policy.md, the environment and the agent in docs/environments.md work as they are printed. */
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type OpenEnvironment, openEnvironments } from '../src/environments/index.ts';
import { openRun } from '../src/runs/index.ts';
import { trainPolicy } from '../src/trainers/policy/policy.ts';
import { tinyModel } from './support/tiny-model.ts';

it('trains against the module of docs/policy.md', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-docs-'));
  try {
    const page = readFileSync(new URL('../docs/policy.md', import.meta.url), 'utf8');
    const [, printed = ''] = /```ts\n(import type \{ RewardItem \}[\s\S]*?)```/.exec(page) ?? [];
    expect(printed.trimEnd().split('\n').length).toBeLessThanOrEqual(10);
    writeFileSync(join(folder, 'my-reward.ts'), printed);
    writeFileSync(join(folder, 'prompts.jsonl'), '{"prompt": "Say red"}\n{"prompt": "Say blue"}\n');
    using run = await trainPolicy(
      {
        ...{ model: await tinyModel(join(folder, 'model')), dataset: join(folder, 'prompts.jsonl') },
        ...{ rewardModule: join(folder, 'my-reward.ts'), outputDir: folder, runName: 'run', reportTo: [] },
        ...{ maxNewTokens: 4, maxSteps: 2, evalSteps: -1, batchSize: 1, gradAccum: 1, saveModel: false },
      },
      { run: { curves: false } },
    ).open();
    for await (const { metrics } of run) {
      expect(metrics['train/reward_my-reward_brevity']).toBeLessThan(0);
      expect(metrics['train/reward_my-reward_colour']).toBeGreaterThanOrEqual(0);
    }
    using rollouts = openRun(run.folder).rollouts();
    const [first] = rollouts.query();
    expect(rollouts.parts(1)['my-reward/brevity']).toBeCloseTo(-0.01 * (first?.completion.length ?? 0), 9);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('trains in the environment of docs/environments.md', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-docs-'));
  try {
    const page = readFileSync(new URL('../docs/environments.md', import.meta.url), 'utf8');
    const [, printed = ''] = /```ts\n(import type \{ Environment \}[\s\S]*?)```/.exec(page) ?? [];
    const env = join(folder, 'my-env.ts');
    writeFileSync(env, printed);
    using opened = await openEnvironments(env, { timeLimitMs: 5000 });
    const shop = opened.all[0] as OpenEnvironment;
    const episode = await shop.start({ seed: 7, difficulty: 1 });
    const [, asked] = /What is (\w+)\?/.exec(episode.messages[0]?.content ?? '') ?? [];
    const step = await episode.step(`<price>${asked}</price>`, { turn: 1 });
    const price = step.observation[0]?.content;
    expect(price).toMatch(/^[1-9]$/);
    const last = await episode.step(`<answer>${price}</answer>`, { turn: 2 });
    expect(last).toMatchObject({ done: true, success: true, reward: 1 });
    using run = await trainPolicy(
      {
        ...{ model: await tinyModel(join(folder, 'model')), env, outputDir: folder, runName: 'run', reportTo: [] },
        ...{ maxNewTokens: 40, maxSteps: 1, evalSteps: -1, batchSize: 1, gradAccum: 1, saveModel: false },
      },
      { run: { curves: false } },
    ).open();
    const [taken, ...more] = await Array.fromAsync(run);
    expect(taken?.metrics['train/turns']).toBeGreaterThanOrEqual(1);
    expect(more).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('trains the agent of docs/environments.md, with the client that it imports', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-docs-'));
  try {
    const page = readFileSync(new URL('../docs/environments.md', import.meta.url), 'utf8');
    const [, printed = ''] = /```ts\n(import type \{ Agent \}[\s\S]*?)```/.exec(page) ?? [];
    const agent = join(folder, 'my-agent.ts');
    writeFileSync(agent, printed);
    symlinkSync(new URL('../node_modules', import.meta.url), join(folder, 'node_modules'));
    using run = await trainPolicy(
      {
        ...{ model: await tinyModel(join(folder, 'model')), agent, outputDir: folder, runName: 'run', reportTo: [] },
        ...{ maxNewTokens: 200, maxSteps: 1, evalSteps: -1, batchSize: 1, gradAccum: 1, saveModel: false },
      },
      { run: { curves: false } },
    ).open();
    const [taken, ...more] = await Array.fromAsync(run);
    expect(taken?.metrics['train/turns']).toBeGreaterThanOrEqual(1);
    expect(taken?.metrics).toMatchObject({ 'train/conversations': 1, 'train/accuracy': expect.any(Number) });
    expect(more).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
