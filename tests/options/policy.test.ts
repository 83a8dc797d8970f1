/** Every option of `attune train policy` does something or is refused; see trainer-walk.ts. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { openPrompts } from '../../src/rollouts/opening.ts';
import { Tokenizer } from '../../src/text/index.ts';
import { policySchema } from '../../src/trainers/policy/config.ts';
import { startPolicy, trainPolicy } from '../../src/trainers/policy/policy.ts';
import { trainReward } from '../../src/trainers/reward/reward.ts';
import { agentOf, at, makeModels, questions, removeFiles, reply, templated, writeRows } from './files.ts';
import { cadenceProofs, loraProofs, modelProofs, noBestChosen, optimizerProofs, runProofs } from './shared-proofs.ts';
import { changes, fails, mends, type Options, refused, seen, walk } from './trainer-walk.ts';

afterAll(removeFiles);

beforeAll(async () => {
  await makeModels();
  const asked = questions.map((prompt) => ({ prompt }));
  writeRows('data.jsonl', asked);
  writeRows('others.jsonl', asked.toReversed().slice(3));
  writeRows(
    'answers.jsonl',
    questions.map((prompt, i) => ({ prompt, answer: String(i) })),
  );
  writeRows('parts/train.jsonl', asked.slice(0, 8));
  writeRows('parts/test.jsonl', asked.slice(8));
  writeFileSync(at('by-length.mjs'), 'export default (items) => items.map(({ response }) => response.length);');
  writeFileSync(at('broken.mjs'), 'export default () => { throw new Error("no score today"); };');
  writeFileSync(
    at('slow.mjs'),
    'export default async (items) => { await new Promise((r) => setTimeout(r, 400)); return items.map(() => 1); };',
  );
  const begins = 'messages: "red " + random.int(1, 1e6)';
  writeFileSync(
    at('slow-env.mjs'),
    `export default { name: 'slow', start: ({ random }) => ({ ${begins}, step: () => new Promise((r) => setTimeout(() => r({ done: true }), 400)) }) };`,
  );
  writeFileSync(
    at('broken-env.mjs'),
    `export default { name: 'broken', start: ({ random }) => ({ ${begins}, step() { throw new Error('no step today'); } }) };`,
  );
  for (const [name, reward] of [
    ['agent', 0.25],
    ['other-agent', 0.5],
  ] as const)
    writeFileSync(at(`${name}.mjs`), agentOf(reward));
  templated('thinking', '{% for m in messages %}{{ m.content }}{% endfor %}{% if loud %} good{% endif %}');
  const pairs = questions.map((prompt, i) => ({ prompt, chosen: reply(i), rejected: 'no' }));
  const short = { maxSteps: 1, analysisSamples: 0, evalSteps: -1, saveSteps: -1, reportTo: ['none' as const] };
  const made = { model: at('model'), dataset: pairs, outputDir: at('rm'), runName: 'rm', validationSplit: 0, ...short };
  await trainReward(made, { cache: false, run: { curves: false } });
});

const byLength = (items: readonly { response: string }[]) => items.map(({ response }) => response.length);

const several = { ppoEpochs: 3, lr: 0.05 };
/** So long that some responses end earlier than others. */
const uneven = { maxNewTokens: 120 };
const ppo = { algorithm: 'ppo' };
const dapo = { algorithm: 'dapo' };
/** Another model as the teacher; options of rewards are not read then. */
const opd =
  (more: Options = {}) =>
  () => ({ algorithm: 'opd', teacher: at('other'), eosPenalty: undefined, ...more });
const byAdvantage = opd({ distillAs: 'advantage' });
const unread = (value: unknown) => fails(value, /has no effect on/);
const noKl = (value: unknown) => refused(value, /has no weight/, { klCoef: 0 });
const tasks = { task: 'spell_backward:1-3', dataset: undefined, verifierReward: true };
const withTask = (value: unknown) => refused(value, /--task/, tasks);
const evaluating = { evalSteps: 1, evalNumPrompts: 4 };
const noPrompts: [Options, RegExp] = [{ evalNumPrompts: 0 }, /--eval-num-prompts 0/];
const unevaluated = (value: unknown) => refused(value, /--eval-steps -1/);
const noRollouts = (value: unknown) => refused(value, /no rollouts are saved/, { saveRollouts: false });
const noModule = (value: unknown) => refused(value, /there is no --reward-module/);
const noEnvironment = (value: unknown) => refused(value, /there is no --env/);
const played = { env: 'guess:1', dataset: undefined, promptFormat: 'transcript', maxNewTokens: 200 };
const ofEnvironment = (value: unknown) => refused(value, /the environment gives the reward/, played);
const equalRewards = { ...dapo, rewardWeights: ['byLength=0'] };

/** The difficulty that a curriculum is at after groups that all, and then none, were solved. */
async function levels(options: Options): Promise<number[]> {
  const config = policySchema.parse({ task: 'spell_backward:1-3', curriculum: true, ...options });
  const { prompts } = await openPrompts(config, await Tokenizer.load(at('model')));
  const found: number[] = [];
  for (const success of [0.5, 0.5, 0.1]) {
    const batch = await prompts.take(8);
    prompts.learn?.(
      batch,
      batch.map(() => success),
    );
    found.push(...Object.values(prompts.metrics?.() ?? {}));
  }
  return found;
}
const cadence = cadenceProofs({ metric: 'eval/kl', greaterIsBetter: false, unevaluated: [noPrompts], evaluating });

/** The reward of an environment stands alone. */
const start: typeof startPolicy = (resolved, more = {}) =>
  startPolicy(resolved, (resolved.config.env ?? resolved.config.agent) === undefined ? more : { ...more, rewards: [] });

walk('train policy', policySchema, start, {
  base: () => ({
    ...{ model: at('model'), dataset: at('data.jsonl'), batchSize: 2, gradAccum: 1, groupSize: 3 },
    ...{ maxNewTokens: 6, maxSteps: 2, lr: 0.01, eosPenalty: 0 },
  }),
  more: { rewards: [byLength] },
  proofs: {
    ...runProofs(at, () => ({ dataset: at('others.jsonl') }), trainPolicy),
    ...modelProofs(at),
    algorithm: changes('weights', 'rloo'),
    klCoef: changes('weights', 2),
    klEstimator: [changes('weights', 'k2', { klCoef: 1 }), noKl('k2')],
    klTimesRatio: [changes('weights', true, { klCoef: 1 }), noKl(true)],
    cliprange: [changes('weights', 1e-5, several), refused(0.1, /decide/, { clipLow: 0.1, clipHigh: 0.1 })],
    clipLow: changes('weights', 1e-5, several),
    clipHigh: changes('weights', 1e-5, several),
    aggregation: changes('weights', 'token', uneven),
    entropyCoef: changes('weights', 1),
    valueCoef: [changes('weights', 3, ppo), unread(3)],
    valueClip: [changes('metrics', 1e-9, { ...ppo, lr: 0.05 }), unread(1)],
    gamma: [changes('weights', 0.5, ppo), unread(0.5)],
    lam: [changes('weights', 0.5, ppo), unread(0.5)],
    whiten: [changes('weights', false, ppo), unread(true)],
    ppoEpochs: changes('metrics', 2),
    targetKl: [changes('metrics', 1e-12, several), refused(1, /used once/)],
    adaptiveKl: [changes('metrics', true, ppo), refused(true, /has no weight/, { ...ppo, klCoef: 0 }), unread(true)],
    dropEqualGroups: changes('metrics', false, equalRewards),
    overlongRamp: changes('rollouts', 0, dapo),
    tauPositive: [changes('metrics', 3, { algorithm: 'sapo' }), unread(1)],
    tauNegative: [changes('metrics', 3, { algorithm: 'sapo' }), unread(1)],
    nMinibatches: [changes('metrics', 2), refused(99, /6 rollouts/)],
    klTarget: [changes('metrics', 1e-9, { ...ppo, adaptiveKl: true, maxSteps: 3 }), refused(1, /--adaptive-kl/)],
    valueBackbone: [changes('weights', 'own', ppo), refused('own', /learns no value/)],
    refModel: [changes('weights', () => at('other'), { klCoef: 1 }), noKl('x')],
    refQuantType: [changes('weights', 'int4', { klCoef: 1 }), refused('int4', /has no weight/, { klCoef: 0 })],
    distillAs: [changes('weights', 'advantage', opd()), unread('loss')],
    teacher: [
      mends(() => at('other'), opd({ teacher: undefined })),
      seen(async (run) => {
        const [one, two] = [await run(opd()()), await run(opd({ teacher: at('biased') })())];
        expect(two.weights).not.toBe(one.weights);
      }),
      refused(() => at('other'), /learns from rewards/),
      refused(() => at('model'), /nothing to learn from itself/, opd()),
    ],
    teacherQuantType: [
      changes('weights', 'int4', opd()),
      changes('weights', 'int4', byAdvantage),
      refused('int4', /learns from rewards/),
    ],
    oldLogprobs: changes('metrics', 'trainer', { ppoEpochs: 2 }),
    maxSamplerGap: fails(1e-12, /sampler/),
    task: seen(async (run) => expect((await run(tasks)).rollouts).not.toBe((await run({})).rollouts)),
    curriculum: [
      changes('metrics', true, tasks),
      refused(true, /needs --task/),
      refused(true, /one difficulty/, { ...tasks, task: 'spell_backward:1' }),
    ],
    curriculumUp: [
      seen(async () => expect(await levels({ curriculumUp: 0.4 })).not.toEqual(await levels({}))),
      refused(0.5, /--curriculum/),
      refused(0.1, /the first must not be the smaller/, { ...tasks, curriculum: true }),
    ],
    curriculumDown: [
      seen(async () => {
        const up = { curriculumUp: 0.4 };
        expect(await levels({ ...up, curriculumDown: 0.35 })).not.toEqual(
          await levels({ ...up, curriculumDown: 0.01 }),
        );
      }),
      refused(0.1, /--curriculum/),
      refused(0.9, /the first must not be the smaller/, { ...tasks, curriculum: true }),
    ],
    dataset: changes('rollouts', () => at('others.jsonl')),
    subset: [refused('x', /file/), withTask('x')],
    trainPrompts: [changes('rollouts', 2), withTask(2)],
    testPrompts: [changes('rollouts', 5, () => ({ dataset: at('parts') })), withTask(2)],
    promptMaxLength: fails(1, /--prompt-max-length/),
    promptFormat: changes('rollouts', 'raw'),
    system: [
      changes('rollouts', 'Be good.'),
      refused('x', /an agent writes all its messages itself/, () => ({
        ...{ ...played, env: undefined, agent: at('agent.mjs') },
      })),
    ],
    templateVariables: changes('rollouts', { loud: true }, () => ({ model: at('thinking') })),
    env: [
      changes('rollouts', 'guess:2', played),
      fails('guess', /leave --dataset out/),
      fails('gues', /Did you mean "guess"/, played),
      fails('guess:9', /it has 1 to 5/, played),
    ],
    agent: [
      changes(
        'rollouts',
        () => at('other-agent.mjs'),
        () => ({ ...played, env: undefined, agent: at('agent.mjs') }),
      ),
      fails('./nowhere.ts', /There is no agent module/, () => ({ ...played, env: undefined, agent: at('agent.mjs') })),
      fails('./nowhere.ts', /--agent brings its own, so leave --env out/, played),
    ],
    maxTurns: [changes('rollouts', 1, played), noEnvironment(3)],
    toolTimeout: [
      fails(0.1, /took longer than 0\.1 s/, () => ({ ...played, env: at('slow-env.mjs') })),
      noEnvironment(5),
    ],
    rewardModelPath: [changes('rollouts', () => at('rm/rm')), ofEnvironment('x')],
    rmQuantType: [
      changes('rollouts', 'int4', () => ({ rewardModelPath: at('rm/rm') })),
      fails('int4', /--rm-quant-type int4: there is no reward model/),
    ],
    // what it changes on a GPU: tests/cuda/rounded-rows.test.ts
    rmPrecision: [
      fails('quick', /exact.*fast/, () => ({ rewardModelPath: at('rm/rm') })),
      fails('fast', /--rm-precision fast: there is no reward model/),
    ],
    rewardModule: [changes('rollouts', () => at('by-length.mjs')), ofEnvironment('./my-reward.ts')],
    rewardWeights: [changes('rollouts', ['byLength=3']), ofEnvironment(['verifier=2'])],
    verifierReward: [
      changes('metrics', true, () => ({ dataset: at('answers.jsonl') })),
      refused(true, /no known answer/),
      ofEnvironment(true),
    ],
    formatReward: [
      changes('metrics', true, tasks),
      refused(true, /verifier/),
      ofEnvironment(true),
      refused(true, /verifier/, { ...tasks, verifierReward: false }),
      refused(true, /verifier/, { ...tasks, verifierReward: undefined }),
    ],
    rewardTimeout: [fails(0.1, /took longer than/, () => ({ rewardModule: at('slow.mjs') })), noModule(5)],
    onRewardError: [
      mends('score', () => ({ rewardModule: at('broken.mjs') })),
      mends('score', () => ({ ...played, env: at('broken-env.mjs') })),
      noModule('score'),
    ],
    rewardNormalization: [changes('rollouts', 'batch'), refused('batch', /only measured/, opd())],
    eosPenalty: [changes('rollouts', 3), refused(3, /only measured/, opd())],
    ...optimizerProofs,
    epochs: [
      optimizerProofs.epochs,
      refused(2, /--max-steps decides/),
      refused(2, /tasks are endless/, tasks),
      refused(2, /environments are endless/, played),
    ],
    maxSteps: changes('metrics', 1),
    microBatchTokens: changes('blocks', 20),
    groupSize: changes('rollouts', 2),
    maxNewTokens: changes('rollouts', 3),
    temperature: changes('rollouts', 0.5),
    topP: changes('rollouts', 0.3),
    topK: changes('rollouts', 2),
    minP: changes('rollouts', 0.5),
    truncatedRatio: [
      changes('weights', true, { topK: 2 }),
      refused(true, /nothing is truncated/),
      refused(true, /has no ratio/, opd({ topK: 2 })),
    ],
    rolloutSlots: changes('blocks', 1),
    cacheDtype: changes('metrics', 'int8'),
    maxSamplingRounds: [changes('rollouts', 2, equalRewards), refused(2, /--drop-equal-groups/)],
    saveRollouts: changes('files', false),
    saveTokens: [changes('rollouts', true), noRollouts(true)],
    rolloutsDir: [
      seen(async (run) => {
        const { folder } = await run({ rolloutsDir: at('elsewhere'), runName: 'placed' });
        expect(existsSync(join(folder, 'rollouts.db'))).toBe(false);
      }),
      noRollouts('x'),
    ],
    ...cadence,
    greaterIsBetter: [...cadence.greaterIsBetter, noBestChosen],
    evalNumPrompts: [changes('evaluations', 2, evaluating), unevaluated(2)],
    evalAtStart: [
      changes('evaluations', false, evaluating),
      unevaluated(true),
      refused(true, noPrompts[1], { ...evaluating, ...noPrompts[0] }),
    ],
    evalSamples: [
      changes('evaluations', 2, evaluating),
      unevaluated(2),
      refused(2, noPrompts[1], { ...evaluating, ...noPrompts[0] }),
    ],
    ...loraProofs(at),
    loraDropout: [refused(0.5, /nothing is dropped/, { lora: true }), refused(0.5, /--lora/)],
  },
});
