/** Every option of `attune evaluate benchmark` does something or is refused; see command-walk.ts. */
import { afterAll, beforeAll, vi } from 'vitest';
import { evaluateBenchmarkSchema } from '../../src/cli/evaluate-benchmark.ts';
import { changes, fails, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, questions, removeFiles, templated, writeRows } from './files.ts';

const answers = questions.slice(0, 4).map((question, i) => ({ question, answer: String(i) }));
const choices = questions.slice(0, 4).map((question, i) => ({
  ...{ question, choices: ['red', 'blue', 'good'], answer: i % 3, subject: 'sums' },
}));

// Pictures take most of such a run, and no option is about them.
vi.mock('../../src/runs/plots/plots.ts', async (whole) => ({
  ...(await whole<object>()),
  toPng: async () => new Uint8Array(),
}));

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  templated('chatting', '{% for m in messages %}good {{ m.role }} {{ m.content }} good{% endfor %}');
  writeRows('answers.jsonl', answers);
  writeRows('others.jsonl', answers.toReversed());
  writeRows('choices.jsonl', choices);
  writeRows('parts/train.jsonl', answers);
  writeRows('parts/test.jsonl', answers.slice(0, 3));
  writeRows('subsets/one/test.jsonl', answers);
  writeRows('subsets/two/test.jsonl', answers.slice(0, 3));
});

const asked = () => ({ suite: at('choices.jsonl'), maxNewTokens: undefined });
const chat = () => ({ model: at('chatting'), chat: true });
const sampled = { k: 2 };
const shots = { shots: 1 };
/** Read only where the model writes. */
const written = (value: unknown) => refused(value, /nothing is written/, asked);

walkCommand(['evaluate', 'benchmark'], evaluateBenchmarkSchema, {
  output: 'outputDir',
  base: () => ({ model: at('model'), suite: at('answers.jsonl'), maxNewTokens: 6, dtype: 'float32' }),
  proofs: {
    model: changes(() => at('other')),
    against: changes(() => at('other')),
    suite: changes(() => at('others.jsonl')),
    format: changes('gsm8k'),
    mode: [changes('generate', asked), refused('choice', /no choices/)],
    choices: [changes('text', asked), refused('letters', /--mode choice/)],
    split: changes('train', () => ({ suite: at('parts') })),
    subset: [changes('two', () => ({ suite: at('subsets'), subset: 'one' })), refused('x', /one file/)],
    limit: changes(2),
    chat: [changes(true, asked), fails(true, /not both/, { raw: true })],
    raw: changes(true, () => ({ model: at('chatting') })),
    shots: changes(1),
    shotsFrom: [changes(() => at('others.jsonl'), shots), refused(() => at('others.jsonl'), /no examples/)],
    instruction: [changes('Be good.', chat), refused('Be good.', /plain text/, { raw: true })],
    system: [changes('Be good.', chat), refused('Be good.', /plain text/, { raw: true })],
    k: [changes(2), fails(2, /decided once/, asked)],
    samples: [changes(3, sampled), written(3)],
    maxNewTokens: [changes(3), written(3)],
    temperature: [changes(3, sampled), refused(3, /--k/)],
    topP: [changes(0.05, sampled), refused(0.5, /--k/)],
    stop: [changes([...'aeiorsnd ?'], { ...sampled, maxNewTokens: 20 }), written(['e'])],
    cacheDtype: [changes('int8', { ...sampled, maxNewTokens: 100 }), written('int8')],
    seed: changes(7, sampled),
    outputDir: fails('/proc/nope', /--output-dir/),
    json: changes(true),
    dtype: changes('bfloat16', asked),
    device: fails('cuda:99', /cuda/i),
    quantType: changes('int4', asked),
  },
});
