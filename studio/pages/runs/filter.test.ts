import { describe, expect, it } from 'vitest';
import type { RunRow } from '../../../src/studio/api.ts';
import { run } from './filter.test-support.ts';
import { filterRuns, type RunFilter, resultOf } from './filter.ts';

const all = [
  run('a-10', { method: 'grpo', metric: { name: 'eval/accuracy', value: 0.5 }, tags: ['keep'] }),
  run('a-2', { method: 'ppo', model: 'Qwen/Qwen3-0.6B', state: 'running' }),
  run('b', { kind: 'sft', metric: { name: 'eval/loss', value: 0.9 } }),
];
const names = (filter: Partial<RunFilter>) =>
  filterRuns(all, { text: '', kind: '', state: '', sort: 'name', dir: 'asc', ...filter }).map(({ name }) => name);

describe('the list of runs', () => {
  it('is searched by words and tags, in any field', () => {
    expect(names({ text: 'qwen PPO' })).toEqual(['a-2']);
    expect(names({ text: '#ke' })).toEqual(['a-10']);
    expect(names({ text: '#ke ppo' })).toEqual([]);
    expect(names({ text: 'grpo/b' })).toEqual(['b']);
    expect(names({ kind: 'policy', state: 'running' })).toEqual(['a-2']);
  });

  it('shows and sorts by any metric', () => {
    const runs = [run('a', { last: { 'train/kl': 0.1 } }), run('b', { last: { 'train/kl': 0.3 } }), run('c')];
    const filter = { text: '', kind: '', state: '', metric: 'train/kl', sort: 'metric', dir: 'desc' } as const;
    expect(filterRuns(runs, filter).map(({ name }) => name)).toEqual(['b', 'a', 'c']);
    expect([resultOf(runs[0] as RunRow, 'train/kl'), resultOf(runs[2] as RunRow, 'train/kl')]).toEqual([
      { name: 'train/kl', value: 0.1 },
      undefined,
    ]);
  });

  it('keeps runs that go on in their places, whichever wrote last', () => {
    const runs = [
      run('old', { state: 'running', created: 1, updated: 9 }),
      run('new', { state: 'running', created: 2, updated: 8 }),
      run('done', { created: 3, updated: 10 }),
    ];
    const filter = { text: '', kind: '', state: '', sort: 'updated', dir: 'desc' } as const;
    expect(filterRuns(runs, filter).map(({ name }) => name)).toEqual(['new', 'old', 'done']);
  });

  it('is sorted with numbers as numbers, and the unknown last', () => {
    expect(names({})).toEqual(['a-2', 'a-10', 'b']);
    expect(names({ sort: 'metric', dir: 'desc' })).toEqual(['b', 'a-10', 'a-2']);
  });
});
