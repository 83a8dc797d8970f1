import { expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { whereNext } from './demo.ts';

it('refuses a model that is not there, in place of showing something else', async () => {
  const { code, out, err } = await attune('demo', '--model', './nope');
  expect([code, out, err]).toEqual([2, '', 'attune: The folder "./nope" does not exist.\n']);
});

it('reports its faults together', async () => {
  const { code, err } = await attune('demo', '--minutes', '0', '--outputdir', 'x');
  expect([code, err]).toEqual([2, expect.stringMatching(/unknown option '--outputdir'.*Did you mean --output-dir/s)]);
  expect((await attune('demo', '--minutes', '0')).err).toContain('--minutes: expected a number more than 0, got 0.');
});

it('leads on with the real folders and with files that are there', () => {
  const commands = whereNext('attune-demo/today').map(([command]) => command);
  expect(commands[0]).toMatch(/ rollouts attune-demo\/today\/policy\/verifier$/);
  expect(commands.slice(-2)).toEqual(['sh recipes/story.sh', expect.stringMatching(/ studio attune-demo\/today$/)]);
  expect(commands.join('\n')).not.toMatch(/[<>…]/);
});
