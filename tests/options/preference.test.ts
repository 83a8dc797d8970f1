/** Every option of `attune train preference` does something or is refused; see trainer-walk.ts. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { preferenceSchema } from '../../src/trainers/preference/config.ts';
import { startPreference, trainPreference } from '../../src/trainers/preference/preference.ts';
import { tinyModel } from '../support/tiny-model.ts';
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
import { changes, fails, mends, refused, seen, walk } from './trainer-walk.ts';

afterAll(removeFiles);

type Row = Record<string, unknown>;
const pair = (i: number): Row => ({ prompt: questions[i], chosen: reply(i), rejected: `no ${i}` });
const each = (row: (i: number) => Row): Row[] => questions.map((_, i) => row(i));

beforeAll(async () => {
  await makeModels();
  await tinyModel(at('dropping'), {
    ...{ hiddenSize: 16, layers: 1 },
    config: { model_type: 'gpt2', architectures: ['GPT2LMHeadModel'], resid_pdrop: 0.3 },
  });
  writeRows('data.jsonl', each(pair));
  writeRows(
    'others.jsonl',
    each((i) => ({ ...pair(i), chosen: 'yes' })),
  );
  writeRows('parts/train.jsonl', each(pair));
  writeRows('parts/test.jsonl', each(pair).slice(0, 9));
  writeRows('broken.jsonl', [...each(pair), { prompt: 'x', chosen: 7, rejected: 'no' }]);
  writeRows(
    'odd-pairs.jsonl',
    each((i) => ({ q: questions[i], good: reply(i), bad: 'no' })),
  );
  writeRows(
    'chats.jsonl',
    each((i) => ({ talk: [{ role: 'user', content: questions[i] }], chosen: reply(i), rejected: 'no' })),
  );
  writeRows(
    'labels.jsonl',
    each((i) => ({ prompt: questions[i], completion: reply(i), label: i % 2 === 0 })),
  );
  writeRows(
    'odd-labels.jsonl',
    each((i) => ({ prompt: questions[i], answered: reply(i), liked: i % 2 === 0 })),
  );
});

const kto = () => ({ loss: 'kto', dataset: at('labels.jsonl') });
const liked = { completionColumn: 'answered', labelColumn: 'liked' };
const oddPairs = { promptColumn: 'q', chosenColumn: 'good', rejectedColumn: 'bad' };
const without = (columns: Row, name: string) =>
  Object.fromEntries(Object.entries(columns).filter(([key]) => key !== name));
const oddPairsWithout = (name: string) => () => ({ dataset: at('odd-pairs.jsonl'), ...without(oddPairs, name) });
const likedWithout = (name: string) => () => ({
  loss: 'kto',
  dataset: at('odd-labels.jsonl'),
  ...without(liked, name),
});
const cadence = cadenceProofs({ metric: 'eval/loss', greaterIsBetter: true, unevaluated: [noneHeldOut] });

/** Samples are drawn at every step; they are looked at in samples.jsonl. */
const sampling = {
  sampleSteps: 1,
  sampleMaxNewTokens: 4,
  sampleTemperature: 0.9,
  sampleCount: 2,
  sampleOrder: 'random',
};
const sampled = (name: string, value: unknown) => [
  seen(async (run) => {
    const texts = async (options: Row) =>
      readFileSync(join((await run({ ...sampling, ...options })).folder, 'samples.jsonl'), 'utf8');
    expect(await texts({ [name]: value })).not.toBe(await texts({}));
  }),
  refused(value, /--sample-steps/),
];

walk('train preference', preferenceSchema, startPreference, {
  base: () => ({
    ...{ model: at('model'), dataset: at('data.jsonl'), validationSplit: 0.25, batchSize: 2, gradAccum: 2 },
    ...{ maxSteps: 2, lr: 0.01 },
  }),
  proofs: {
    loss: changes('weights', 'ipo'),
    beta: [changes('weights', 0.7), refused(0.7, /./, { loss: 'kto-pair', labelSmoothing: 0.1 })],
    labelSmoothing: [changes('weights', 0.2, { loss: 'cdpo' }), fails(0.2, /label-smoothing/, { loss: 'ipo' })],
    lengthNormalize: [changes('weights', true, { loss: 'ipo' }), fails(true, /length-normalize/)],
    gammaBetaRatio: [changes('weights', 2, { loss: 'simpo' }), fails(2, /gamma-beta-ratio/)],
    desirableWeight: [changes('weights', 3, kto), fails(3, /desirable-weight/)],
    undesirableWeight: [changes('weights', 3, kto), fails(3, /undesirable-weight/)],
    ...modelProofs(at),
    dropout: [changes('weights', true, () => ({ model: at('dropping') })), refused(true, /no dropout/)],
    refModel: [changes('weights', () => at('other')), fails('x', /no reference/, { loss: 'simpo' })],
    refQuantType: [changes('weights', 'int4'), fails('int4', /no reference/, { loss: 'simpo' })],
    refModelUpdateFreq: [changes('weights', 1, { maxSteps: 3 }), fails(1, /no reference/, { loss: 'simpo' })],
    precomputeRef: [
      changes('blocks', true, { maxSteps: 12, epochs: 8 }),
      fails(true, /no reference/, { loss: 'simpo' }),
    ],
    ...dataProofs(at),
    columns: mends({ prompt: 'q', chosen: 'good', rejected: 'bad' }, () => ({ dataset: at('odd-pairs.jsonl') })),
    promptColumn: mends('q', oddPairsWithout('promptColumn')),
    chosenColumn: mends('good', oddPairsWithout('chosenColumn')),
    rejectedColumn: mends('bad', oddPairsWithout('rejectedColumn')),
    completionColumn: [mends('answered', likedWithout('completionColumn')), refused('x', /learns from pairs/)],
    labelColumn: [mends('liked', likedWithout('labelColumn')), refused('x', /learns from pairs/)],
    messagesColumn: mends('talk', () => ({ dataset: at('chats.jsonl') })),
    textColumn: refused('x', /plain text/),
    maxPromptLength: changes('metrics', 3),
    maxCompletionLength: changes('metrics', 3),
    evalBatchSize: [changes('blocks', 1, evaluating), ...evaluatedOnly(2)],
    evalSubsetSize: [changes('evaluations', 1, evaluating), ...evaluatedOnly(2)],
    ...optimizerProofs,
    batchSize: batchSizeProof,
    ...cadence,
    greaterIsBetter: [...cadence.greaterIsBetter, noBestChosen],
    ...loraProofs(at),
    loraDropout: loraDropoutProof(at),
    sampleSteps: [changes('files', 2), refused(1, noneHeldOut[1], noneHeldOut[0])],
    sampleCount: sampled('sampleCount', 1),
    sampleOrder: sampled('sampleOrder', 'fixed'),
    sampleMaxNewTokens: sampled('sampleMaxNewTokens', 2),
    sampleTemperature: sampled('sampleTemperature', 0.5),
    ...runProofs(at, () => ({ dataset: at('others.jsonl') }), trainPreference),
  },
});
