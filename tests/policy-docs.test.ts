/** The reward module in docs/policy.md works as it is printed. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
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
