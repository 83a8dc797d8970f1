import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { openDataset } from '../data/index.ts';
import type { RewardScorer } from '../rewards/index.ts';
import { liveTensors } from '../tensor/index.ts';
import { buildPreferences, pairsOf } from './build-preferences.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-build-'));
const model = join(folder, 'model');
beforeAll(() => tinyModel(model));
afterAll(() => rmSync(folder, { recursive: true }));

/** Long responses are good ones. */
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

describe('a build', () => {
  it('writes what training reads, the same under the same seed', async () => {
    const before = liveTensors();
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
    const made = await buildPreferences({ ...small, task: 'chain_sum:1', output: join(folder, 'task.jsonl') });
    // an untrained model is never right
    expect(made).toMatchObject({ prompts: 6, pairs: 0, withoutPairs: 6, meanScore: 0 });
  });

  it('says what it lacks', async () => {
    await expect(buildPreferences({ ...small, output: join(folder, 'x') })).rejects.toThrow(/--task or a --dataset/);
    await expect(buildPreferences({ ...small, output: join(folder, 'x') }, { dataset: rows })).rejects.toThrow(
      /no reward/,
    );
  });
});
