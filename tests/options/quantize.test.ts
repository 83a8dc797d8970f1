/** Every option of `attune quantize` does something or is refused; see command-walk.ts. */
import { afterAll, beforeAll, vi } from 'vitest';
import { quantizePolicySchema, quantizeRewardSchema } from '../../src/workflows/quantize/config.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, makeRewardModel, pairs, questions, removeFiles, templated, writeRows } from './files.ts';

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
  templated('chatting', '{% for m in messages %}good {{ m.role }} {{ m.content }} good{% endfor %}');
  writeRows('pairs.jsonl', pairs);
  writeRows('others.jsonl', pairs.slice(0, 5));
  writeRows('broken.jsonl', [...pairs, { prompt: 7, chosen: 8, rejected: 9 }]);
  writeRows('parts/train.jsonl', pairs);
  writeRows('parts/test.jsonl', pairs.slice(0, 9));
  writeRows('subsets/one/train.jsonl', pairs);
  writeRows('subsets/two/train.jsonl', pairs.slice(0, 9));
  const prompts = questions.map((prompt) => ({ prompt }));
  writeRows('prompts.jsonl', prompts);
  writeRows('other-prompts.jsonl', prompts.toReversed());
  writeRows('prompt-subsets/one/train.jsonl', prompts);
  writeRows('prompt-subsets/two/train.jsonl', prompts.toReversed());
});

const shared = {
  quantType: changes('int4'),
  skipSave: changes(true),
  outputDir: fails('/proc/nope', /--output-dir/),
  dtype: changes('bfloat16'),
  device: fails('cuda:99', /cuda/i),
  json: changes(true),
};
const task = { task: 'gcd:1', dataset: undefined };
const noDataset = (value: unknown) => refused(value, /no --dataset/, task);

walkCommand(['quantize', 'reward'], quantizeRewardSchema, {
  output: 'outputDir',
  base: () => ({ checkpoint: at('rm'), dataset: at('pairs.jsonl'), dtype: 'float32' }),
  proofs: {
    checkpoint: changes(() => at('prm'), { ...task, evalNumBatches: 2 }),
    ...shared,
    dataset: changes(() => at('others.jsonl')),
    split: [changes('test', () => ({ dataset: at('parts') })), noDataset('test')],
    subset: [changes('two', () => ({ dataset: at('subsets'), subset: 'one' })), noDataset('x')],
    onBadRow: [mends('skip', () => ({ dataset: at('broken.jsonl') })), noDataset('skip')],
    task: [changes('number_sorting:1', { ...task, evalNumBatches: 2 }), fails('gcd:1', /either/)],
    evalBatchSize: changes(2, { evalNumBatches: 2 }),
    evalNumBatches: changes(2),
    maxLength: changes(30),
    seed: changes(7, { evalNumBatches: 2 }),
  },
});

walkCommand(['quantize', 'policy'], quantizePolicySchema, {
  output: 'outputDir',
  base: () => ({
    ...{ model: at('model'), dataset: at('prompts.jsonl'), dtype: 'float32' },
    numPrompts: 3,
    maxNewTokens: 6,
  }),
  proofs: {
    model: changes(() => at('other')),
    ...shared,
    numPrompts: changes(2),
    dataset: changes(() => at('other-prompts.jsonl')),
    subset: [changes('two', () => ({ dataset: at('prompt-subsets'), subset: 'one' })), noDataset('x')],
    task: [changes('number_sorting:1', task), fails('gcd:1', /not from both/)],
    promptFormat: changes('raw', () => ({ model: at('chatting') })),
    system: changes('Be good.', () => ({ model: at('chatting') })),
    maxNewTokens: changes(3),
    temperature: changes(3),
    promptMaxLength: fails(1, /--prompt-max-length/),
    seed: changes(7),
  },
});
