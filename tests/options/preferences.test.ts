/** Every option of `attune preferences build` does something or is refused; see command-walk.ts. */
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { Sampler } from '../../src/models/index.ts';
import { buildPreferencesSchema } from '../../src/workflows/preferences/config.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { at, makeModels, makeRewardModel, questions, removeFiles, templated, there, writeRows } from './files.ts';

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  await makeRewardModel('rm');
  await makeRewardModel('prm', 'process');
  templated('chatting', '{% for m in messages %}good {{ m.role }} {{ m.content }} {{ tone }} good{% endfor %}');
  const answers = questions.map((prompt, i) => ({ prompt, answer: String(i) }));
  writeRows('answers.jsonl', answers);
  writeRows('others.jsonl', answers.toReversed());
  writeRows(
    'prompts.jsonl',
    questions.map((prompt) => ({ prompt })),
  );
  writeFileSync(at('by-length.mjs'), 'export default (items) => items.map(({ response }) => response.length);');
  writeFileSync(
    at('slow.mjs'),
    'export default async (items) => { await new Promise((done) => setTimeout(done, 200)); return items.map((_, i) => i); };',
  );
  writeFileSync(at('failing.mjs'), 'export default () => { throw new Error("no"); };');
});

const task = { task: 'spell_backward:1', dataset: undefined };
const byModule = (name: string) => ({ rewardModule: at(`${name}.mjs`) });
const unmodelled = () => ({ ...byModule('by-length'), rewardModelPath: undefined });
const byTask = { ...task, rewardModelPath: undefined };
const graded = { ...byTask, kind: 'graded' };
/** Long enough for a response to hold the separator. */
const steps = { ...byTask, kind: 'steps', continuations: 1, samples: 1, maxNewTokens: 200 };
/** Options of pairs. */
const ofPairs = (value: unknown) => refused(value, /--kind pairs/, graded);
const ofSteps = (value: unknown) => refused(value, /--kind steps/);

/** Rows may be the same; what is asked of the sampler differs. */
const asked = (options: object, given: object) => ({
  kind: 'seen' as const,
  body: async (run: (options: Record<string, unknown>) => Promise<unknown>) => {
    const requests = async (own: Record<string, unknown>) => {
      const generate = vi.spyOn(Sampler.prototype, 'generate');
      await run({ ...given, prompts: 4, ...own });
      const calls = generate.mock.calls.map(([asked]) => asked.map(({ samples = 1 }) => samples));
      generate.mockRestore();
      return calls;
    };
    expect(await requests({ ...options })).not.toEqual(await requests({}));
  },
});
const continued = asked({ continuations: 3 }, { ...steps, stepSeparator: 'o' });

walkCommand(['preferences', 'build'], buildPreferencesSchema, {
  output: 'output',
  ending: '.jsonl',
  base: () => ({
    ...{ model: at('model'), dataset: at('answers.jsonl'), rewardModelPath: at('rm'), dtype: 'float32' },
    ...{ prompts: 3, samples: 3, maxNewTokens: 6 },
  }),
  proofs: {
    model: changes(() => at('other')),
    tokenizer: mends(
      () => at('model'),
      () => ({ model: at('bare') }),
    ),
    dtype: changes('bfloat16', { maxNewTokens: 20 }),
    device: fails('cuda:99', /cuda/i),
    task: [changes('gcd:1', task), fails('gcd:1', /not from both/)],
    dataset: changes(() => at('others.jsonl')),
    subset: [refused('x', /file/), refused('x', /--task/, task)],
    promptMaxLength: fails(1, /--prompt-max-length/, task),
    promptFormat: changes('raw', () => ({ model: at('chatting') })),
    system: changes('Be good.', () => ({ model: at('chatting') })),
    templateVariables: changes({ tone: 'red' }, () => ({ model: at('chatting') })),
    rewardModelPath: [changes(() => at('prm')), ofPairs('x')],
    rmQuantType: [changes('int4'), fails('int4', /there is no reward model/, unmodelled), ofPairs('int4')],
    rmPrecision: [
      fails('quick', /exact.*fast/),
      fails('fast', /there is no reward model/, unmodelled),
      ofPairs('fast'),
    ],
    rewardModule: [changes(() => at('by-length.mjs')), ofPairs('x')],
    rewardWeights: [changes(['reward_model=-1']), ofPairs(['x=1'])],
    verifierReward: [fails(true, /known answer/, () => ({ dataset: at('prompts.jsonl') })), ofPairs(true)],
    // What it adds to the verifier's score: src/rewards/scorers.test.ts.
    formatReward: [refused(true, /verifier/), ofPairs(true)],
    rewardTimeout: [fails(0.05, /longer than 0.05 s/, () => byModule('slow')), refused(1, /--reward-module/, byTask)],
    onRewardError: [mends('score', () => byModule('failing')), refused('score', /--reward-module/, byTask)],
    maxNewTokens: changes(3),
    temperature: changes(3),
    topP: changes(0.05),
    topK: changes(2),
    minP: changes(0.3),
    seed: changes(7),
    // A model that is right now and then.
    kind: changes('graded', { ...byTask, task: 'gcd:1', model: 'models/tiny', maxNewTokens: 40 }),
    prompts: changes(2),
    samples: changes(2),
    pairs: [changes('all'), ofPairs('all')],
    minGap: [changes(0.02), fails(100, /No pairs.*--min-gap 100/), ofPairs(1)],
    continuations: [continued, ofSteps(2)],
    // What it decides: src/workflows/preferences/build.test.ts.
    stepThreshold: [fails(2, /--step-threshold/, steps), ofSteps(1)],
    stepSeparator: [changes('o', steps), ofSteps(' ')],
    batchPrompts: asked({ batchPrompts: 1 }, {}),
    output: fails('/proc/nope/x', /--output/),
    overwrite: mends(true, () => ({ output: there('x.jsonl') })),
  },
});
