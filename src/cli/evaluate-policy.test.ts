import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { promptWriter } from '../rollouts/opening.ts';
import { taskEvalPrompts } from '../rollouts/task-prompts.ts';
import { countTrainedOn } from '../rollouts/trained-prompts.ts';
import { Tokenizer } from '../text/index.ts';
import { policySchema } from '../trainers/policy/config.ts';
import { trainPolicy } from '../trainers/policy/policy.ts';
import { policyNames } from './evaluate-policy.ts';

it.each([
  ['models/tiny', undefined, { policy: 'tiny' }],
  ['checkpoints/grpo/run-1/final', 'models/tiny', { policy: 'run-1', opponent: 'tiny' }],
  ['runs/a/step-20', 'Qwen/Qwen3-0.6B', { policy: 'a', opponent: 'Qwen3-0.6B' }],
  ['a/run/final', 'b/run/best_model', { policy: 'a/run/final', opponent: 'b/run/best_model' }],
])('%s against %s is called so', (policy, opponent, names) => expect(policyNames(policy, opponent)).toEqual(names));

describe('prompts that the run was trained on', () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-evaluate-policy-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  afterEach(() => void vi.unstubAllEnvs());
  const at = (name: string) => join(folder, name);
  const run = at('runs/first');

  beforeAll(async () => {
    const model = await tinyModel(at('model'), { hiddenSize: 16, layers: 1 });
    const rows = Array.from({ length: 12 }, (_, i) => JSON.stringify({ prompt: `What is ${i}?`, answer: String(i) }));
    writeFileSync(at('qa.jsonl'), rows.join('\n'));
    // One epoch over all but the 4 prompts that it holds out.
    await trainPolicy(
      {
        ...{ model, dataset: at('qa.jsonl'), evalNumPrompts: 4, evalSteps: 4, evalAtStart: false, reportTo: [] },
        ...{ batchSize: 2, gradAccum: 1, groupSize: 2, maxNewTokens: 2, outputDir: at('runs'), runName: 'first' },
      },
      { run: { curves: false } },
    );
  });

  it('are not asked for where it is stopped before: it ends with the signal’s exit code, and says no fault', async () => {
    const idle = process.listenerCount('SIGTERM');
    const args = ['--model', at('model'), '--dataset', at('qa.jsonl'), '--output-dir', at('stopped')];
    let isOver = false;
    const asked = attune('evaluate', 'policy', ...args).finally(() => {
      isOver = true;
    });
    while (process.listenerCount('SIGTERM') === idle && !isOver) await new Promise((turn) => setImmediate(turn));
    process.emit('SIGTERM', 'SIGTERM');
    const { code, err } = await asked;
    expect([code, err]).toEqual([143, expect.not.stringContaining('attune:')]);
  });

  async function evaluated(...args: string[]) {
    const asked = ['--dataset', at('qa.jsonl'), '--samples', '0', '--max-new-tokens', '2', '--output-dir', at('out')];
    const { code, err } = await attune('evaluate', 'policy', ...asked, ...args);
    expect(code).toBe(0);
    const { trained_on: told, prompts } = JSON.parse(readFileSync(at('out/policy_evaluation.json'), 'utf8'));
    const page = readFileSync(at('out/policy_evaluation.html'), 'utf8');
    using database = new DatabaseSync(join(run, 'rollouts.db'), { readOnly: true });
    const answered = new Set(
      database
        .prepare('select prompt from rollouts')
        .all()
        .map(({ prompt }) => prompt as string),
    );
    const trained = (prompts as { prompt: string }[]).filter(({ prompt }) =>
      [...answered].some((text) => text.includes(prompt.split('\n\n').at(-1) as string)),
    ).length;
    return { told, trained, prompts: prompts.length, err, page };
  }

  it('are none with its own seed and number, or fewer', async () => {
    const own = await evaluated('--model', run, '--num-prompts', '4');
    expect(own).toMatchObject({ told: 0, trained: 0, prompts: 4, err: expect.not.stringContaining('trains on') });
    expect(own.page).toContain('4 held-out prompts');
  });

  it.each([
    ['more of them', ['--num-prompts', '9']],
    ['another seed', ['--num-prompts', '4', '--seed', '7', '--system', 'Be brief.']],
  ])('are counted where there are: %s', async (_, args) => {
    const { told, trained, prompts, err, page } = await evaluated('--model', join(run, 'final'), ...args);
    expect(trained).toBeGreaterThan(0);
    expect(told).toBe(trained);
    expect(err).toContain(`Note: ${trained} of these ${prompts} prompts are among those that`);
    expect(page).toContain(`${prompts} prompts, ${trained} of them trained on`);
  });

  it('are not known where the hub, which has the run’s data, does not answer, and not asked for with problems of tasks', async () => {
    cpSync(run, at('runs/elsewhere'), { recursive: true });
    const path = at('runs/elsewhere/final/train_config.json');
    const config = JSON.parse(readFileSync(path, 'utf8')) as object;
    writeFileSync(path, JSON.stringify({ ...config, dataset: 'nobody/nothing' }));
    vi.stubEnv('HF_ENDPOINT', 'http://127.0.0.1:9');
    const { told, err } = await evaluated('--model', at('runs/elsewhere'), '--num-prompts', '4');
    expect([told, err.includes('trains on')]).toEqual([undefined, false]);
    const tokenizer = await Tokenizer.load(at('model'));
    const writer = promptWriter(policySchema.parse({ task: 'gcd' }), tokenizer);
    const problems = taskEvalPrompts(writer, { tasks: 'gcd', seed: 1, count: 2 });
    const trained = policySchema.parse({ ...config, dataset: at('not-there.jsonl') });
    expect(await countTrainedOn(trained, problems, tokenizer)).toBeUndefined();
  });

  it('are not known of a model that is no run', async () => {
    const { told, page, err } = await evaluated('--model', at('model'), '--num-prompts', '4');
    expect([told, err.includes('trains on'), page.includes('held-out')]).toEqual([undefined, false, false]);
  });
});
