/** Every option of `attune environments demonstrate` does something or is refused; see command-walk.ts. */
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll } from 'vitest';
import { demonstrateSchema } from '../../src/cli/environments.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, removeFiles, there } from './files.ts';

beforeAll(() =>
  writeFileSync(
    at('slow-player.mjs'),
    `export default { name: 'slow', start: ({ random }) => ({ messages: 'red ' + random.int(1, 1e6), step: () => ({ done: true }) }),
       demonstrate: () => new Promise((r) => setTimeout(() => r(['red']), 400)) };`,
  ),
);
afterAll(removeFiles);

walkCommand(['environments', 'demonstrate'], demonstrateSchema, {
  base: () => ({ env: 'guess:1', count: 6 }),
  output: 'out',
  ending: '.jsonl',
  proofs: {
    env: [changes('guess:2'), fails('gues', /Did you mean "guess"/)],
    count: changes(7),
    seed: changes(7),
    skill: changes(0),
    part: changes('test'),
    out: fails('/proc/nope/x', /--out/),
    overwrite: [mends(true, () => ({ out: there('x.jsonl') })), refused(true, /without --out/, { out: undefined })],
    toolTimeout: fails(0.1, /took longer than 0\.1 s/, () => ({ env: at('slow-player.mjs'), count: 1 })),
  },
});
