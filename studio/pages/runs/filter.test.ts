import { describe, expect, it } from 'vitest';
import type { RunRow } from '../../../src/studio/api.ts';
import { filterRuns, type RunFilter } from './filter.ts';

const run = (name: string, more: Partial<RunRow> = {}): RunRow => ({
  id: name,
  name,
  path: `grpo/${name}`,
  kind: 'policy',
  state: 'finished',
  step: 1,
  last: {},
  bytes: 10,
  created: 0,
  updated: 0,
  checkpoints: 0,
  hasRollouts: false,
  hasTokens: false,
  tags: [],
  ...more,
});
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

  it('is sorted with numbers as numbers, and the unknown last', () => {
    expect(names({})).toEqual(['a-2', 'a-10', 'b']);
    expect(names({ sort: 'metric', dir: 'desc' })).toEqual(['b', 'a-10', 'a-2']);
  });
});
