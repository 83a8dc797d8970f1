/** `--precision`: for commands that write text alone, or score alone. `--cache-dtype`: for those that write text or train on it. */
import { describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';

const others = [
  ['compare'],
  ['evaluate', 'policy'],
  ['evaluate', 'benchmark'],
  ['quantize', 'policy'],
  ['preferences', 'build'],
  ['train', 'policy'],
  ['train', 'preference'],
  ['train', 'sft'],
  ['train', 'reward'],
];

describe('--precision', () => {
  it.each([['generate'], ['chat'], ['serve']])(
    '%s has it, exact unless given, and refuses other words',
    async (command) => {
      const help = (await attune(command, '--help')).out.replace(/\s+/g, ' ');
      expect(help).toContain('exact: log-probs as in training; fast: ');
      const { code, err } = await attune(command, 'models/tiny', '--precision', 'quick');
      expect(code).toBe(2);
      expect(err).toMatch(/precision.*exact.*fast/s);
    },
  );

  it.each(['score', 'evaluate reward'])('%s scores by it, and refuses other words', async (command) => {
    const { code, err } = await attune(...command.split(' '), '--checkpoint', 'models/tiny', '--precision', 'quick');
    expect(code).toBe(2);
    expect(err).toMatch(/precision.*exact.*fast/s);
  });

  it.each(others.map((words) => [words.join(' '), words] as const))('%s does not know it', async (_, words) => {
    const { code, err } = await attune(...words, '--precision', 'fast');
    expect([code, err]).toEqual([2, expect.stringContaining('--precision')]);
  });
});

describe('--cache-dtype', () => {
  it.each([['generate'], ['chat'], ['serve'], ['train policy'], ['evaluate policy'], ['evaluate benchmark']])(
    '%s has it, the model’s dtype unless given, and refuses other words',
    async (words) => {
      const command = words.split(' ');
      const help = (await attune(...command, '--help')).out.replace(/\s+/g, ' ');
      expect(help).toMatch(/--cache-dtype .*in 8 bits.*(default: "?model|model when left out)/);
      const model = command.length === 1 ? ['models/tiny'] : ['--model', 'models/tiny'];
      const { code, err } = await attune(...command, ...model, '--cache-dtype', 'fp8');
      expect(code).toBe(2);
      expect(err).toMatch(/cache.dtype.*model.*int8/is);
    },
  );

  it.each([['score'], ['evaluate reward'], ['train sft'], ['train preference'], ['train reward']])(
    '%s does not know it',
    async (words) => {
      const { code, err } = await attune(...words.split(' '), '--cache-dtype', 'int8');
      expect([code, err]).toEqual([2, expect.stringContaining('--cache-dtype')]);
    },
  );
});
