import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { openDataset } from '../../data/index.ts';
import { loadTokenizer, type SampledResponse } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import { type RolloutSampler, sampleRollouts } from '../../rollouts/rollout.ts';
import { liveTensors } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { buildPreferences } from './build.ts';
import { buildPreferencesSchema } from './config.ts';
import { gradedRows } from './graded.ts';
import { pairsOf } from './pairs.ts';
import { stepRows } from './steps.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-build-'));
const model = join(folder, 'model');
beforeAll(() => tinyModel(model));
afterAll(() => rmSync(folder, { recursive: true }));

/** Scores by length. */
const length: RewardScorer = { name: 'length', score: async (items) => items.map(({ response }) => response.length) };
const rows = Array.from({ length: 6 }, (_, i) => ({ prompt: `What is ${i} + 1?` }));
const small = { model, device: 'cpu', prompts: 6, samples: 4, maxNewTokens: 6, batchPrompts: 4 };

describe('pairs', () => {
  const responses = [0, 3, 1, 3].map((score, i) => ({ text: `t${i}`, score }));
  const texts = (given: Parameters<typeof pairsOf>[1]) =>
    pairsOf(responses, given).map(([w, l]) => `${w.text}>${l.text}`);

  it('are the best and the worst, or all that differ', () => {
    expect(texts({ pairs: 'best-worst', minGap: 0 })).toEqual(['t1>t0']);
    expect(texts({ pairs: 'all', minGap: 0 })).toEqual(['t1>t2', 't1>t0', 't3>t2', 't3>t0', 't2>t0']);
    expect(texts({ pairs: 'all', minGap: 1 })).toEqual(['t1>t2', 't1>t0', 't3>t2', 't3>t0']);
    expect(texts({ pairs: 'best-worst', minGap: 3 })).toEqual([]);
  });

  it('never hold a text beside itself', () => {
    const same = [
      { text: 'a', score: 1 },
      { text: 'a', score: 0 },
    ];
    expect(pairsOf(same, { pairs: 'all', minGap: 0 })).toEqual([]);
  });
});

/** A sampler that answers with `say` of the prompt and the place in the group. */
function speaking(tokenizer: Tokenizer, say: (asked: string, place: number) => string): RolloutSampler {
  return {
    async generate(requests) {
      return requests.map(({ prompt, samples = 1 }) =>
        Array.from({ length: samples }, (_, place): SampledResponse => {
          const ids = [...tokenizer.encode(say(tokenizer.decode(Int32Array.from(prompt)), place))];
          return { ids, logprobs: ids.map(() => 0), finish: 'stop' } as unknown as SampledResponse;
        }),
      );
    },
    dispose() {},
  };
}

describe('graded solutions and labelled steps', () => {
  const problems = [{ question: 'What is 3 + 4?', answer: '3 + 4 = 7\n#### 7' }];

  it('grade the policy’s own responses by known answers, in rows that outcome models read', async () => {
    const tokenizer = await loadTokenizer({ model });
    const config = buildPreferencesSchema.parse({ ...small, kind: 'graded', samples: 3 });
    const prompt: PolicyPrompt = {
      ...{ index: 0, messages: [{ role: 'user', content: 'q' }], text: 'q' },
      ...{ ids: Int32Array.from(tokenizer.encode('q')), answer: '7' },
    };
    const says = ['It is 7', 'It is 8', 'It is 7'];
    const sampler = speaking(tokenizer, (_, place) => says[place] as string);
    const context = { config, prompts: [prompt], sampler, tokenizer };
    const maker = gradedRows(context);
    const options = { ...config, groupSize: 3, seeds: () => 1 };
    const rollouts = await sampleRollouts(sampler, tokenizer, [prompt], options);
    const [rows] = await maker.rows({ first: 0, prompts: [prompt], rollouts });
    expect(rows).toEqual([
      { prompt: 'q', completion: 'It is 7', correct: true },
      { prompt: 'q', completion: 'It is 8', correct: false },
    ]);
    expect(maker.summary()).toEqual({ kind: 'graded', solutions: 2, right: 1, mixed: 1 });
    const read = await openDataset(rows as Record<string, unknown>[], { shape: 'graded' });
    expect((await read.toArray()).map(({ solution, correct }) => [solution, correct])).toEqual([
      ['It is 7', true],
      ['It is 8', false],
    ]);
  });

  it('build graded solutions from plain questions with answers, through the model', async () => {
    const output = join(folder, 'graded.jsonl');
    const made = await buildPreferences({ ...small, kind: 'graded', output }, { dataset: problems });
    expect(made).toMatchObject({ kind: 'graded', prompts: 1, right: 0, mixed: 0, stopped: false });
    const read = await (await openDataset(output, { shape: 'graded' })).toArray();
    expect(read).toHaveLength(made.solutions);
  });

  it('label a step by what becomes of it', async () => {
    const tokenizer = await loadTokenizer({ model });
    const prompt: PolicyPrompt = {
      ...{ index: 0, messages: [{ role: 'user', content: 'q' }], text: 'q' },
      ...{ ids: Int32Array.from(tokenizer.encode('q')), answer: '7' },
    };
    // After the first step one continuation in four is right, after the second none, and the whole response is wrong.
    const solution = 'first\n\nsecond\nso 9';
    const sampler = speaking(tokenizer, (asked, place) => {
      if (asked === 'q') return solution;
      if (asked.endsWith('first\n')) return place === 2 ? 'so 7' : 'so 8';
      return 'so 8';
    });
    const build = async (more: object) => {
      const config = buildPreferencesSchema.parse({ ...small, kind: 'steps', samples: 1, ...more });
      const maker = stepRows({ config, prompts: [prompt], sampler, tokenizer });
      const options = { ...config, groupSize: 1, seeds: () => 1 };
      const rollouts = await sampleRollouts(sampler, tokenizer, [prompt], options);
      return { rows: (await maker.rows({ first: 0, prompts: [prompt], rollouts }))[0], summary: maker.summary() };
    };
    const { rows, summary } = await build({});
    expect(rows).toEqual([
      {
        prompt: 'q',
        steps: [
          { text: 'first', label: 1, share: 0.25 },
          { text: 'second', label: -1, share: 0 },
          { text: 'so 9', label: -1, share: 0 },
        ],
      },
    ]);
    expect(summary).toEqual({ kind: 'steps', solutions: 1, steps: 3, rightSteps: 1, mixed: 1 });
    const read = await openDataset(rows as Record<string, unknown>[], { shape: 'steps' });
    expect((await read.toArray())[0]?.steps.map(({ label }) => label)).toEqual([1, -1, -1]);
    const strict = await build({ stepThreshold: 0.5 });
    expect(strict.summary.rightSteps).toBe(0);
  });

  it('refuse what they do not read, and prompts whose answer nobody knows', async () => {
    const build = (more: object, dataset?: Record<string, unknown>[]) =>
      buildPreferences({ ...small, output: join(folder, 'x'), ...more }, dataset ? { dataset } : {});
    await expect(build({ kind: 'graded', minGap: 1 }, problems)).rejects.toThrow('--min-gap: has no effect here');
    await expect(build({ kind: 'steps', rewardModule: './r.ts' }, problems)).rejects.toThrow('--reward-module');
    await expect(build({ continuations: 3 }, problems)).rejects.toThrow(/--continuations: .*--kind steps/);
    await expect(build({ kind: 'graded', stepThreshold: 1 }, problems)).rejects.toThrow('--step-threshold');
    await expect(build({ kind: 'graded' }, rows)).rejects.toThrow('needs to know what is right');
    await expect(build({ samples: 1 }, rows)).rejects.toThrow('two responses');
  });
});

describe('a build', () => {
  it('writes what training reads, the same under the same seed', async () => {
    const before = await settledTensors();
    const build = (name: string, seed: number) =>
      buildPreferences({ ...small, output: join(folder, name), seed }, { dataset: rows, scorers: [length] });
    const made = await build('a.jsonl', 1);
    expect(made.pairs + made.withoutPairs).toBe(6);
    expect(made.meanChosen).toBeGreaterThan(made.meanRejected);
    const pairs = await (await openDataset(join(folder, 'a.jsonl'), { shape: 'preference' })).toArray();
    expect(pairs).toHaveLength(made.pairs);
    for (const { chosen, rejected, margin } of pairs) {
      expect(chosen.length).toBeGreaterThan(rejected.length);
      expect(margin).toBe(chosen.length - rejected.length);
    }
    await build('b.jsonl', 1);
    await build('c.jsonl', 2);
    const text = (name: string) => readFileSync(join(folder, name), 'utf8');
    expect(text('b.jsonl')).toBe(text('a.jsonl'));
    expect(text('c.jsonl')).not.toBe(text('a.jsonl'));
    expect(liveTensors()).toBe(before);
  });

  it('keeps what was made when it is stopped, and nothing when it fails', async () => {
    const stop = new AbortController();
    const output = join(folder, 'stopped.jsonl');
    const once: RewardScorer = {
      name: 'once',
      score: async (items, options) => {
        stop.abort();
        return length.score(items, options);
      },
    };
    const given = { ...small, batchPrompts: 2, output };
    const made = await buildPreferences(given, { dataset: rows, scorers: [once], signal: stop.signal });
    expect(made).toMatchObject({ stopped: true, prompts: 2, output: `${output}.part` });
    expect(readFileSync(made.output, 'utf8').trim().split('\n').filter(Boolean)).toHaveLength(made.pairs);
    expect(existsSync(output)).toBe(false);
    const broken: RewardScorer = { name: 'broken', score: () => Promise.reject(new Error('no score')) };
    const failing = buildPreferences({ ...given, output: join(folder, 'f') }, { dataset: rows, scorers: [broken] });
    await expect(failing).rejects.toThrow('no score');
    expect(readdirSync(folder).filter((name) => name.startsWith('f'))).toEqual([]);
  });

  it('has the verifier judge a task', async () => {
    const output = join(folder, 'task.jsonl');
    const build = (more: object = {}) => buildPreferences({ ...small, task: 'chain_sum:1', output, ...more });
    // An untrained model is never right, so there are no pairs to write.
    await expect(build()).rejects.toThrow(
      /^No pairs: none of 6 prompts gave different responses whose scores differ, so .*task\.jsonl was not written\. Sample more/,
    );
    expect(readdirSync(folder).filter((name) => name.startsWith('task'))).toEqual([]);
    writeFileSync(output, 'earlier\n');
    await expect(build({ overwrite: true, minGap: 2 })).rejects.toThrow(
      /differ by more than --min-gap 2, .*lower --min-gap/,
    );
    expect(readFileSync(output, 'utf8')).toBe('earlier\n');
  });

  it('says what it lacks', async () => {
    await expect(buildPreferences({ ...small, output: join(folder, 'x') })).rejects.toThrow(/--task .*--dataset/);
    await expect(buildPreferences({ ...small, output: join(folder, 'x') }, { dataset: rows })).rejects.toThrow(
      /no reward/,
    );
  });
});
