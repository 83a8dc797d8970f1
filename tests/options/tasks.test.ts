/** Every option of `attune tasks generate` does something or is refused; see command-walk.ts. */

import { afterAll } from 'vitest';
import { generateSchema } from '../../src/cli/tasks.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { removeFiles, there } from './files.ts';

afterAll(removeFiles);

const pairs = { kind: 'preference' };

walkCommand(['tasks', 'generate'], generateSchema, {
  base: () => ({ kind: 'graded', tasks: 'chain_sum:1', count: 6 }),
  output: 'out',
  ending: '.jsonl',
  proofs: {
    kind: changes('sft'),
    tasks: changes('gcd:1'),
    count: changes(7),
    seed: changes(7),
    out: fails('/proc/nope/x', /--out/),
    overwrite: [mends(true, () => ({ out: there('x.jsonl') })), refused(true, /without --out/, { out: undefined })],
    style: [changes('answer'), refused('answer', /step by step/, { kind: 'steps' })],
    part: changes('test'),
    testShare: [changes(0.9, { part: 'test' }), refused(0.9, /--part all/)],
    wrongShare: [changes(1), refused(1, /one right and one wrong/, pairs)],
    perPrompt: [changes(3), refused(3, /--kind graded/, pairs)],
    system: [changes(true, { kind: 'sft' }), refused(true, /--kind sft/)],
  },
});
