/** Every option of `attune train sft` does something or is refused; see trainer-walk.ts. */
import { afterAll, beforeAll, expect } from 'vitest';
import { sftSchema, startSft, trainSft } from '../../src/trainers/sft/sft.ts';
import { at, makeModels, questions, removeFiles, reply, writeRows } from './files.ts';
import {
  batchSizeProof,
  cadenceProofs,
  dataProofs,
  evaluatedOnly,
  evaluating,
  loraDropoutProof,
  loraProofs,
  modelProofs,
  noBestChosen,
  noneHeldOut,
  optimizerProofs,
  runProofs,
} from './shared-proofs.ts';
import { changes, mends, refused, seen, walk } from './trainer-walk.ts';

afterAll(removeFiles);

const chat = (question: string, answer: string) => [
  { role: 'user', content: question },
  { role: 'assistant', content: answer },
];
const chats = questions.map((question, i) => ({ messages: chat(question, reply(i)) }));
const rows = (row: (question: string, answer: string, i: number) => unknown) =>
  questions.map((question, i) => row(question, reply(i), i));

beforeAll(async () => {
  await makeModels();
  writeRows('data.jsonl', chats);
  writeRows(
    'others.jsonl',
    rows((question) => ({ messages: chat(question, 'no') })),
  );
  writeRows('parts/train.jsonl', chats);
  writeRows('parts/test.jsonl', chats.slice(0, 9));
  writeRows(
    'named.jsonl',
    rows((question, answer) => ({ chat: chat(question, answer) })),
  );
  writeRows(
    'pairs.jsonl',
    rows((prompt, chosen) => ({ prompt, chosen, rejected: 'no' })),
  );
  writeRows(
    'columns.jsonl',
    rows((q, a) => ({ q, a })),
  );
  writeRows(
    'odd-pairs.jsonl',
    rows((prompt, good) => ({ prompt, good, bad: 'no' })),
  );
  writeRows(
    'odd-labels.jsonl',
    rows((prompt, completion, i) => ({ prompt, completion, liked: i % 3 > 0 })),
  );
  writeRows(
    'texts.jsonl',
    rows((text) => ({ text })),
  );
  writeRows(
    'odd-texts.jsonl',
    rows((line) => ({ line })),
  );
  writeRows('broken.jsonl', [...chats, { messages: 7 }]);
});

const plain = () => ({ dataset: at('texts.jsonl'), shape: 'text' });
const taught = () => ({ teacher: at('other') });
const untaught = (value: unknown) => refused(value, /no --teacher/);
const cadence = cadenceProofs({ metric: 'eval/loss', greaterIsBetter: true, unevaluated: [noneHeldOut] });

walk('train sft', sftSchema, startSft, {
  base: () => ({
    ...{ model: at('model'), dataset: at('data.jsonl'), validationSplit: 0.25, batchSize: 2, gradAccum: 2 },
    ...{ maxSteps: 2, lr: 0.01, warmupRatio: 0 },
  }),
  proofs: {
    ...runProofs(at, () => ({ dataset: at('others.jsonl') }), trainSft),
    ...modelProofs(at),
    model: [
      changes('weights', () => at('other')),
      refused(
        () => at('model'),
        /--from-config/,
        () => ({ fromConfig: at('model/config.json'), tokenizer: at('model') }),
      ),
    ],
    fromConfig: seen(async (run) => {
      const fresh = { fromConfig: at('model/config.json'), model: undefined, tokenizer: at('model') };
      expect((await run(fresh)).weights).not.toBe((await run({})).weights);
    }),
    ...dataProofs(at),
    promptFormat: [changes('metrics', 'raw'), refused('raw', /no turns/, plain)],
    columns: mends({ messages: 'chat' }, () => ({ dataset: at('named.jsonl') })),
    messagesColumn: [mends('chat', () => ({ dataset: at('named.jsonl') })), refused('chat', /no turns/, plain)],
    promptColumn: [
      mends('q', () => ({ dataset: at('columns.jsonl'), completionColumn: 'a' })),
      refused('q', /no turns/, plain),
    ],
    completionColumn: [
      mends('a', () => ({ dataset: at('columns.jsonl'), promptColumn: 'q' })),
      refused('a', /no turns/, plain),
    ],
    chosenColumn: [
      mends('good', () => ({ dataset: at('odd-pairs.jsonl'), shape: 'messages', rejectedColumn: 'bad' })),
      refused('good', /--shape messages/),
    ],
    rejectedColumn: [
      mends('bad', () => ({ dataset: at('odd-pairs.jsonl'), shape: 'messages', chosenColumn: 'good' })),
      refused('bad', /--shape messages/),
    ],
    labelColumn: [
      changes('weights', 'liked', () => ({ dataset: at('odd-labels.jsonl'), shape: 'messages' })),
      refused('liked', /--shape messages/),
    ],
    textColumn: [
      mends('line', () => ({ dataset: at('odd-texts.jsonl') })),
      refused('line', /not texts/, { shape: 'messages' }),
    ],
    shape: mends('messages', () => ({ dataset: at('pairs.jsonl') })),
    assistantOnly: [changes('weights', false), refused(true, /no turns/, plain)],
    packing: [
      changes('metrics', true, { maxLength: 60 }),
      refused(true, /--token-budget/, { tokenBudget: 60, batchSize: undefined }),
    ],
    evalNumBatches: [changes('evaluations', 1, { ...evaluating, evalBatchSize: 1 }), ...evaluatedOnly(2)],
    evalBatchSize: [changes('evaluations', 1, { ...evaluating, evalNumBatches: 1 }), ...evaluatedOnly(2)],
    teacher: [changes('weights', () => at('other')), refused(() => at('model'), /nothing to learn from itself/)],
    teacherQuantType: [changes('weights', 'int4', taught), untaught('int4')],
    teacherTopK: [changes('weights', 3, taught), untaught(3)],
    teacherTemperature: [changes('weights', 2, taught), untaught(2)],
    distillShare: [changes('weights', 0.5, taught), untaught(0.5)],
    ...optimizerProofs,
    batchSize: batchSizeProof,
    ...cadence,
    greaterIsBetter: [...cadence.greaterIsBetter, noBestChosen],
    ...loraProofs(at),
    loraDropout: loraDropoutProof(at),
  },
});
