/** Every option of `attune train reward` does something or is refused; see trainer-walk.ts. */
import { afterAll, beforeAll } from 'vitest';
import { rewardSchema } from '../../src/trainers/reward/config.ts';
import { startReward, trainReward } from '../../src/trainers/reward/reward.ts';
import { at, makeModels, questions, removeFiles, reply, writeRows } from './files.ts';
import {
  batchSizeProof,
  cadenceProofs,
  dataProofs,
  evaluating,
  loraDropoutProof,
  loraProofs,
  modelProofs,
  noneHeldOut,
  optimizerProofs,
  runProofs,
} from './shared-proofs.ts';
import { changes, mends, refused, walk } from './trainer-walk.ts';

afterAll(removeFiles);

type Row = Record<string, unknown>;
const pair = (i: number): Row => ({ prompt: questions[i], chosen: reply(i), rejected: `no ${i}` });
const each = (row: (i: number) => Row): Row[] => questions.map((_, i) => row(i));

beforeAll(async () => {
  await makeModels();
  writeRows('data.jsonl', each(pair));
  writeRows(
    'others.jsonl',
    each((i) => ({ ...pair(i), chosen: 'yes' })),
  );
  writeRows('parts/train.jsonl', each(pair));
  writeRows('parts/test.jsonl', each(pair).slice(0, 9));
  writeRows('broken.jsonl', [...each(pair), { prompt: 'x', chosen: 7, rejected: 'no' }]);
  writeRows(
    'margins.jsonl',
    each((i) => ({ ...pair(i), margin: 0.5 + i })),
  );
  writeRows(
    'ties.jsonl',
    each((i) => ({ ...pair(i), ...(i % 4 === 0 ? { rejected: reply(i) } : {}) })),
  );
  writeRows(
    'thoughts.jsonl',
    each((i) => ({ ...pair(i), chosen: `<think>red ${i}</think>${reply(i)}` })),
  );
  writeRows(
    'odd-pairs.jsonl',
    each((i) => ({ q: questions[i], good: reply(i), bad: 'no' })),
  );
  writeRows(
    'chats.jsonl',
    each((i) => ({ talk: [{ role: 'user', content: questions[i] }], chosen: reply(i), rejected: 'no' })),
  );
  writeRows(
    'graded.jsonl',
    each((i) => ({ prompt: questions[i], completion: reply(i), is_correct: i % 2 === 0 })),
  );
  writeRows(
    'odd-graded.jsonl',
    each((i) => ({ prompt: questions[i], answered: reply(i), right: i % 2 === 0 })),
  );
  writeRows(
    'steps.jsonl',
    each((i) => ({ prompt: questions[i], completions: ['red', reply(i)], labels: [true, i % 2 === 0] })),
  );
});

const steps = () => ({ dataset: at('steps.jsonl'), type: 'process' });
const notPairs = (value: unknown) => refused(value, /no pairs/, steps);
const graded = { completionColumn: 'answered', labelColumn: 'right' };
const oddPairs = { promptColumn: 'q', chosenColumn: 'good', rejectedColumn: 'bad' };
const without = (columns: Row, name: string) =>
  Object.fromEntries(Object.entries(columns).filter(([key]) => key !== name));
const oddPairsWithout = (name: string) => () => ({ dataset: at('odd-pairs.jsonl'), ...without(oddPairs, name) });
const gradedWithout = (name: string) => () => ({
  dataset: at('odd-graded.jsonl'),
  type: 'outcome',
  ...without(graded, name),
});

walk('train reward', rewardSchema, startReward, {
  base: () => ({
    ...{ model: at('model'), dataset: at('data.jsonl'), validationSplit: 0.25, batchSize: 2, gradAccum: 2 },
    ...{ maxSteps: 2, lr: 0.01, analysisSamples: 0 },
  }),
  proofs: {
    type: mends('outcome', () => ({ dataset: at('graded.jsonl') })),
    margin: [
      changes('weights', true, () => ({ dataset: at('margins.jsonl') })),
      refused(true, /data\.jsonl:1: the pair has no margin.*--margin/),
      notPairs(true),
    ],
    labelSmoothing: [changes('weights', 0.3), notPairs(0.3)],
    centring: [changes('weights', 0.3), notPairs(0.3)],
    stripThinking: changes('weights', false, () => ({ dataset: at('thoughts.jsonl') })),
    stepSeparator: [changes('weights', '|', steps), refused('|', /only labelled steps have ends/)],
    dropTies: [changes('weights', true, () => ({ dataset: at('ties.jsonl') })), notPairs(true)],
    minResponseChars: changes('weights', 5),
    ...modelProofs(at),
    ...dataProofs(at),
    columns: mends({ prompt: 'q', chosen: 'good', rejected: 'bad' }, () => ({ dataset: at('odd-pairs.jsonl') })),
    promptColumn: mends('q', oddPairsWithout('promptColumn')),
    chosenColumn: [mends('good', oddPairsWithout('chosenColumn')), notPairs('good')],
    rejectedColumn: [mends('bad', oddPairsWithout('rejectedColumn')), notPairs('bad')],
    completionColumn: [
      mends('answered', gradedWithout('completionColumn')),
      refused('x', /no single graded responses/),
    ],
    labelColumn: [mends('right', gradedWithout('labelColumn')), refused('x', /no single graded responses/)],
    messagesColumn: mends('talk', () => ({ dataset: at('chats.jsonl') })),
    textColumn: refused('x', /plain text/),
    evalNumBatches: changes('evaluations', 1, { ...evaluating, evalBatchSize: 1 }),
    evalBatchSize: changes('evaluations', 1, { ...evaluating, evalNumBatches: 1 }),
    evalSeed: changes('evaluations', 5, { ...evaluating, evalNumBatches: 1, evalBatchSize: 1 }),
    analysisSamples: [changes('files', 3), refused(3, noneHeldOut[1], noneHeldOut[0])],
    ...optimizerProofs,
    batchSize: batchSizeProof,
    ...cadenceProofs({ metric: 'eval/loss', greaterIsBetter: true, unevaluated: [noneHeldOut] }),
    ...loraProofs(at),
    loraDropout: loraDropoutProof(at),
    ...runProofs(at, () => ({ dataset: at('others.jsonl') }), trainReward),
  },
});
