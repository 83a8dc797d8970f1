/** `--precision`: for commands that write text alone. */
import { describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';

const others = [
  ['score'],
  ['compare'],
  ['evaluate', 'policy'],
  ['evaluate', 'reward'],
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

  it.each(others.map((words) => [words.join(' '), words] as const))('%s does not know it', async (_, words) => {
    const { code, err } = await attune(...words, '--precision', 'fast');
    expect([code, err]).toEqual([2, expect.stringContaining('--precision')]);
  });
});
