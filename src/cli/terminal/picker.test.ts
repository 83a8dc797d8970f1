import { expect, it } from 'vitest';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { Picker } from './picker.ts';

const run = (name: string, snapshots: string[] = []) =>
  ({
    ...{
      name,
      path: `/runs/${name}`,
      kind: 'policy',
      state: 'finished',
      created: '',
      step: 1,
      bytes: 1,
      rollouts: false,
    },
    snapshots: snapshots.map((each) => ({ name: each, path: '', bytes: 1, quantised: [] })),
    tags: [],
  }) satisfies RunEntry;

const press = (picker: Picker, ...names: string[]) => {
  for (const name of names) picker.press(name.length === 1 ? { sequence: name, name } : { name });
};

it('marks runs and snapshots by keys', () => {
  const picker = new Picker([run('alpha', ['step-1', 'step-2']), run('beta')]);
  press(picker, 'down', 'down', 'space');
  expect(picker.marked).toMatchObject([{ run: { name: 'alpha' }, snapshot: 'step-2' }]);
  expect(picker.lines(10)[3]).toBe('> [x]     step-2');
  // A whole run takes its snapshots with it.
  press(picker, 'up', 'up', 'up', 'space');
  expect(picker.marked).toMatchObject([{ run: { name: 'alpha' } }]);
  press(picker, 'space', 'return');
  expect([picker.marked.length, picker.done]).toEqual([1, 'taken']);
});

it('searches, and leaves with Escape', () => {
  const picker = new Picker([run('alpha', ['step-1']), run('beta')]);
  press(picker, 'b', 'e', 't');
  expect(picker.visible.map(({ run: { name } }) => name)).toEqual(['beta']);
  press(picker, 'space', 'backspace', 'backspace', 'backspace');
  expect(picker.visible).toHaveLength(3);
  expect(picker.marked).toMatchObject([{ run: { name: 'beta' } }]);
  press(picker, 'escape');
  expect(picker.done).toBe('left');
});
