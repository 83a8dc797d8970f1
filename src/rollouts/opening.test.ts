import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Tokenizer } from '../text/index.ts';
import { heldOutPrompts } from './opening.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');

it('says that tasks have fewer test problems than were asked for', async () => {
  const tokenizer = await Tokenizer.load(tiny);
  const notes: string[] = [];
  const done = (text?: string) => void notes.push(text ?? '');
  const held = (evalNumPrompts: number) =>
    heldOutPrompts(
      {
        ...{ task: 'gcd:1', curriculum: false, curriculumUp: 1, curriculumDown: 0, testPrompts: 0, seed: 42 },
        ...{ promptMaxLength: 100, promptFormat: 'auto', evalSteps: 1, evalNumPrompts },
      },
      tokenizer,
      { progress: { start: () => ({ advance() {}, done }) } },
    );
  expect([(await held(5)).length, notes]).toEqual([5, []]);
  const { length } = await held(1000);
  expect(length).toBeLessThan(30);
  expect(notes).toEqual([
    `${length} in place of 1000: the tasks have no more different test problems at this difficulty`,
  ]);
});
