/** `attune studio`: what a wrong start says. A studio that starts is in tests/studio. */
import { expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';

it.each([
  ['./nope', 'The folder "./nope" does not exist.'],
  ['models/tinny', 'The folder "models/tinny" does not exist; models/ is a folder here. Did you mean "models/tiny"?'],
  ['models/tiny,/nope/x', 'The folder "/nope/x" does not exist.'],
])('a model that is not there is refused at once: %s', async (model, words) => {
  const { code, err } = await attune('studio', '.', '--model', model, '--no-browser', '--port', '0');
  expect([code, err]).toEqual([2, expect.stringContaining(words)]);
});
