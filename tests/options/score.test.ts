/** Every option of `attune score` does something or is refused; see command-walk.ts. */
import { afterAll, beforeAll } from 'vitest';
import { scoreSchema } from '../../src/cli/score.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, makeRewardModel, questions, removeFiles, reply, there, writeRows } from './files.ts';

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  await makeRewardModel('rm');
  await makeRewardModel('prm', 'process');
  const rows = questions.slice(0, 4).map((prompt, i) => ({ prompt, response: `red good\nno\n${reply(i)}` }));
  writeRows('rows.jsonl', rows);
  writeRows(
    'named.jsonl',
    rows.map(({ prompt, response }) => ({ q: prompt, a: response })),
  );
});

walkCommand(['score'], scoreSchema, {
  base: () => ({ checkpoint: at('rm'), file: at('rows.jsonl'), dtype: 'float32' }),
  output: 'out',
  ending: '.jsonl',
  proofs: {
    file: mends(() => at('named.jsonl'), { promptField: 'q', responseField: 'a' }),
    checkpoint: changes(() => at('prm')),
    out: fails('/proc/nope', /--out/),
    overwrite: [mends(true, () => ({ out: there('x.jsonl') })), refused(true, /without --out/, { out: undefined })],
    steps: [changes('last', () => ({ checkpoint: at('prm') })), refused('last', /whole responses/)],
    normalise: changes(true),
    promptField: mends('q', () => ({ file: at('named.jsonl'), responseField: 'a' })),
    responseField: mends('a', () => ({ file: at('named.jsonl'), promptField: 'q' })),
    device: fails('cuda:99', /cuda/i),
    dtype: changes('bfloat16'),
    quantType: changes('int4'),
    precision: fails('quick', /exact.*fast/), // what it changes on a GPU: tests/cuda/rounded-rows.test.ts
  },
});
