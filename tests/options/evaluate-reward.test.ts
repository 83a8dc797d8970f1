/** Every option of `attune evaluate reward` does something or is refused; see command-walk.ts. */
import { afterAll, beforeAll, vi } from 'vitest';
import { evaluateRewardSchema } from '../../src/cli/evaluate-reward.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, makeRewardModel, pairs, removeFiles, stepRows, writeRows } from './files.ts';

// Pictures take most of such a run, and no option is about them.
vi.mock('../../src/runs/plots/plots.ts', async (whole) => ({
  ...(await whole<object>()),
  toPng: async () => new Uint8Array(),
}));

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  await makeRewardModel('rm');
  await makeRewardModel('prm', 'process');
  writeRows('pairs.jsonl', pairs);
  writeRows('steps.jsonl', stepRows);
  writeRows('broken.jsonl', [...pairs, { prompt: 7, chosen: 8, rejected: 9 }]);
  const long = { prompt: 'a', chosen: 'red red red', rejected: 'blue blue blue' };
  writeRows('ties.jsonl', [...pairs, long, { prompt: 'a', chosen: 'no', rejected: 'no' }]);
  writeRows('parts/train.jsonl', pairs);
  writeRows('parts/test.jsonl', pairs.slice(0, 9));
  writeRows('subsets/one/train.jsonl', pairs);
  writeRows('subsets/two/train.jsonl', pairs.slice(0, 9));
  writeRows(
    'odd.jsonl',
    pairs.map(({ prompt, chosen, rejected }) => ({ q: prompt, good: chosen, bad: rejected })),
  );
});

const task = { task: 'gcd:1', dataset: undefined, subsetSize: 4 };
const suite = () => ({ suite: at('pairs.jsonl'), dataset: undefined });
const odd = (column: string) => {
  const columns = { promptColumn: 'q', chosenColumn: 'good', rejectedColumn: 'bad' };
  return () => ({ dataset: at('odd.jsonl'), ...columns, [column]: undefined });
};
const generated = (value: unknown) => refused(value, /--task/, task);
const whole = (value: unknown) => refused(value, /--suite/, suite);
/** A pair has no such column. */
const noPart = (value: unknown) => [generated(value), whole(value), fails(value, /column/)];

walkCommand(['evaluate', 'reward'], evaluateRewardSchema, {
  output: 'outputDir',
  base: () => ({ checkpoint: at('rm'), dataset: at('pairs.jsonl'), dtype: 'float32' }),
  proofs: {
    checkpoint: changes(() => at('prm'), task),
    dataset: changes(() => at('ties.jsonl')),
    split: [changes('test', () => ({ dataset: at('parts') })), generated('test')],
    subset: [
      changes('two', () => ({ dataset: at('subsets'), subset: 'one' })),
      generated('x'),
      refused('x', /one file/),
    ],
    columns: [fails({ chosen: 'none' }, /none/), refused({ chosen: 'none' }, /generated/, task)],
    promptColumn: [mends('q', odd('promptColumn')), generated('q')],
    chosenColumn: [mends('good', odd('chosenColumn')), generated('good')],
    rejectedColumn: [mends('bad', odd('rejectedColumn')), generated('bad')],
    completionColumn: noPart('x'),
    labelColumn: noPart('x'),
    messagesColumn: noPart('x'),
    textColumn: noPart('x'),
    onBadRow: [mends('skip', () => ({ dataset: at('broken.jsonl') })), generated('skip'), whole('skip')],
    subsetSize: changes(5),
    suite: changes(() => at('ties.jsonl'), suite),
    task: changes('number_sorting:1', task),
    steps: [
      changes('last', () => ({ checkpoint: at('prm'), dataset: at('steps.jsonl') })),
      refused('last', /whole responses/),
    ],
    dropTies: [changes(true, () => ({ dataset: at('ties.jsonl') })), generated(true), whole(true)],
    minResponseChars: [changes(10, () => ({ dataset: at('ties.jsonl') })), generated(10), whole(10)],
    outputDir: fails('/proc/nope', /--output-dir/),
    seed: changes(7, task),
    json: changes(true),
    dtype: changes('bfloat16'),
    device: fails('cuda:99', /cuda/i),
    quantType: changes('int4'),
    precision: fails('quick', /exact.*fast/),
  },
});
