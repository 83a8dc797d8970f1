import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Tokenizer } from '../text/index.ts';
import { heldOutPrompts, openPrompts } from './opening.ts';
import { PromptWriter } from './prompts.ts';
import { TaskPrompts } from './task-prompts.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');

it('says that tasks have fewer test problems than were asked for', async () => {
  const tokenizer = await Tokenizer.load(tiny);
  const notes: string[] = [];
  const done = (text?: string) => void notes.push(text ?? '');
  const held = (evalNumPrompts: number, promptMaxLength = 100) =>
    heldOutPrompts(
      {
        ...{ task: 'gcd:1', curriculum: false, curriculumUp: 1, curriculumDown: 0, testPrompts: 0, seed: 42 },
        ...{ promptMaxLength, promptFormat: 'auto', evalSteps: 1, evalNumPrompts },
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
  expect(await held(5, 4)).toEqual([]);
  expect(notes[1]).toMatch(
    /^0 in place of 5: .* at this difficulty of at most 4 tokens \(--prompt-max-length, or the room/,
  );
});

it('says what length no prompt of a task fits into', async () => {
  const writer = new PromptWriter(await Tokenizer.load(tiny), { maxLength: 4 });
  expect(() => new TaskPrompts(writer, { tasks: 'gcd:1', seed: 1 }).take(1)).toThrow(
    /prompts in a row were longer than 4 tokens \(--prompt-max-length, or the room that --max-new-tokens leaves\)/,
  );
});

it('says where the rows of a dataset went that leave nothing to train on', async () => {
  const rows = [...Array.from({ length: 30 }, () => 'Say yes.'), `Say ${'no '.repeat(100)}.`].map((prompt) => ({
    prompt,
  }));
  const opening = openPrompts(
    {
      ...{ curriculum: false, curriculumUp: 1, curriculumDown: 0, testPrompts: 0, seed: 42 },
      ...{ promptMaxLength: 50, promptFormat: 'auto', evalSteps: 1, evalNumPrompts: 1 },
    },
    await Tokenizer.load(tiny),
    { rows },
  );
  await expect(opening).rejects.toThrow(
    'There are no prompts to train on: 1 held out for evaluation (--eval-num-prompts 1), 29 with the text of one of these, and 1 longer than --prompt-max-length 50.',
  );
});
