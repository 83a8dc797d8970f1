/** What a program gets wrong is a UserError that names the argument: no TypeError of ours, no NaN, no endless loop. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { definePolicyAlgorithm, definePreferenceLoss } from '../src/algorithms/index.ts';
import { Batches, openDataset, type TokenStore, tokenise } from '../src/data/index.ts';
import * as attune from '../src/index.ts';
import {
  addLora,
  exportMerged,
  headOutputs,
  inspectModel,
  loadTokenizer,
  microBatches,
  packResponses,
  packSequences,
  responseLogprobs,
} from '../src/models/index.ts';
import { corpusRows, mixture, task } from '../src/tasks/index.ts';
import { Tokenizer } from '../src/text/index.ts';

type Call = (...given: unknown[]) => unknown;
const tiny = 'models/tiny';
let lm: attune.LanguageModel;
let sampler: attune.Sampler;
beforeAll(async () => {
  lm = await attune.LanguageModel.open(tiny);
  sampler = new attune.Sampler(lm.model);
});
afterAll(() => {
  sampler.dispose();
  lm.dispose();
});

const scorer = attune.rewardFunction((items) => items.map(() => 1));
const any = (call: unknown) => call as Call;
const sample = (more: object) => any(sampler.generate.bind(sampler))([{ prompt: [1, 2], maxNewTokens: 2, ...more }]);
const generate = (more: object) => any(attune.generate)({ model: lm, prompt: 'a', maxNewTokens: 2, ...more });
const evaluate = (more: object) => {
  const prompts = [{ messages: [{ role: 'user', content: 'a' }] }];
  return any(attune.evaluatePolicy)({ model: lm.model, tokenizer: lm.tokenizer, prompts, scorer, ...more });
};
const stored = async (options: object) =>
  any(tokenise)(await openDataset([{ text: 'abc' }], { shape: 'text' }), lm.tokenizer, { cache: false, ...options });

it.each<[string, () => unknown, string]>([
  ['generate()', () => any(attune.generate)(), 'generate takes an object'],
  ['generate without a model', () => any(attune.generate)({ prompt: 'a' }), 'model is missing'],
  ['a text as messages', () => generate({ prompt: undefined, messages: 'hi' }), 'messages "hi": expected a list'],
  ['a seed between numbers', () => generate({ seed: 1.5 }), 'seed 1.5: expected a whole number'],
  ['an empty stop', () => generate({ stop: [''] }), 'stop [""]: expected text that is not empty'],
  ['slots 1.5', () => new attune.Sampler(lm.model, { slots: 1.5 }), 'slots 1.5: expected a whole number, 1 or more'],
  ['a mistyped option', () => any(Reflect.construct)(attune.Sampler, [lm.model, { slot: 1 }]), 'Did you mean "slots"?'],
  ['a sampler without a model', () => any(Reflect.construct)(attune.Sampler, []), 'needs a model'],
  ['no maxNewTokens', () => sample({ maxNewTokens: undefined }), 'maxNewTokens is missing'],
  ['maxNewTokens NaN', () => sample({ maxNewTokens: Number.NaN }), 'maxNewTokens NaN: expected a whole number'],
  ['an id outside of the vocabulary', () => sample({ prompt: [1e9] }), 'expected a list, each a whole number, 0 to'],
  ['bigints as prompt ids', () => sample({ prompt: BigInt64Array.of(1n) }), 'prompt BigInt64Array(1) [ 1n ]: expected'],
  ['a text as prompt ids', () => sample({ prompt: 'ab' }), 'prompt "ab": expected a list'],
  ['no requests', () => any(sampler.generate.bind(sampler))(), 'takes a list of requests'],
  ['score()', () => any(attune.score)(), 'score takes an object'],
  ['score without a prompt', () => any(attune.score)({ model: scorer, response: 'a' }), 'Give the `prompt`'],
  ['a text as responses', () => any(attune.score)({ model: scorer, prompt: 'a', responses: 'abc' }), 'responses "abc"'],
  ['a mistyped option of a trainer', () => any(attune.trainPolicy)({}, { reward: [] }), 'Did you mean "rewards"?'],
  [
    'a reward that is no list',
    () => any(attune.trainPolicy)({}, { rewards: () => [1] }),
    'rewards a function: expected',
  ],
  [
    'a mistyped time limit',
    () => any(attune.rewardFunction)(() => [], { timeLimitMS: 9 }),
    'Did you mean "timeLimitMs"',
  ],
  ['an unknown time limit', () => any(attune.rewardFunction)(() => [], { timeoutMs: 9 }), 'does not know "timeoutMs"'],
  ['a mistyped quantType', () => any(attune.loadModel)(tiny, { quanttype: 'int8' }), 'Did you mean "quantType"?'],
  [
    'a mistyped overwrite',
    () => any(attune.exportGguf)({ model: tiny, type: 'f16', out: '/tmp/x.gguf', overwirte: true }),
    'Did you mean "overwrite"?',
  ],
  ['a mistyped alpha', () => any(addLora)(lm.model, { alpa: 8 }), 'Did you mean "alpha"?'],
  ['a mistyped count', () => corpusRows('preference', { tasks: 'gcd:1', ...{ cuont: 3 } }).next(), '"count"?'],
  ['a mistyped port', () => any(attune.serve)(new attune.Registry(), { prt: 0 }), 'Did you mean "port"?'],
  ['a mistyped slots', () => new attune.Registry({ slot: 3 } as object), '"slots"?'],
  ['a mistyped out', () => any(exportMerged)({ model: tiny, out: '/tmp/x', adaptor: 'a' }), 'Did you mean "adapter"?'],
  ['a mistyped maxSamples', () => any(attune.evaluateReward)({ checkpoint: 'x', maxSample: 1 }), '"maxSamples"?'],
  ['mistyped shots', () => any(attune.evaluateBenchmark)({ model: tiny, suite: 'gsm8k', shot: 3 }), '"shots"?'],
  ['a mistyped maxLength', () => any(attune.explore)([{ text: 'a' }], { maxlength: 3 }), 'Did you mean "maxLength"?'],
  ['a mistyped split', () => any(openDataset)([{ text: 'a' }], { splt: 'x' }), 'Did you mean "split"?'],
  ['a mistyped maxLength of tokens', () => stored({ maxlength: 5 }), 'Did you mean "maxLength"?'],
  ['loadModel()', () => any(attune.loadModel)(), 'A model undefined: expected text'],
  ['an unknown dtype', () => any(attune.loadModel)(tiny, { dtype: 'float23' }), 'dtype "float23": expected float32'],
  ['an unknown device', () => any(attune.loadModel)(tiny, { device: 'tpu' }), 'There is no device "tpu": take cpu'],
  ['loadTokenizer()', () => any(loadTokenizer)(), 'A model undefined: expected text'],
  ['Tokenizer.load()', () => any(Tokenizer.load)(), "A tokenizer's folder undefined: expected text"],
  ['encode a number', () => any(lm.tokenizer.encode.bind(lm.tokenizer))(5), 'encode 5: expected text'],
  ['inspect with NaN tokens', () => inspectModel(tiny, { tokens: Number.NaN }), 'tokens NaN'],
  ['headOutputs of nothing', () => any(headOutputs)(lm.model, [], { tokenBudget: 0 }), 'tokenBudget 0: expected'],
  ['micro-batches of 0', () => microBatches([1], { examples: 0 }, () => 1), 'examples 0: expected a number, 1 or more'],
  ['no promptLength', () => any(responseLogprobs)(lm.model.decoder, [{ ids: [1, 2] }]), 'promptLength is missing'],
  [
    'bigints as ids of a response',
    () => any(responseLogprobs)(lm.model.decoder, [{ ids: [1n, 2n], promptLength: 1 }]),
    'A response: ids [ 1n, 2n ]: expected a list, each a whole number',
  ],
  [
    'bigints to pack',
    () => any(packResponses)([{ ids: BigInt64Array.of(1n, 2n), promptLength: 1 }], lm.model.decoder),
    'A response: ids BigInt64Array(2) [ 1n, 2n ]: expected',
  ],
  ['bigints as a sequence', () => any(packSequences)([[1n]]), 'A sequence [ 1n ]: expected a list'],
  ['evaluatePolicy()', () => any(attune.evaluatePolicy)(), 'evaluatePolicy takes an object'],
  ['samples −1', () => evaluate({ samples: -1 }), 'samples -1: expected a whole number, 0 or more'],
  [
    'samples at temperature 0',
    () => evaluate({ samples: 1, temperature: 0 }),
    'temperature 0: expected a number above 0',
  ],
  [
    'a KL at temperature 0',
    () => evaluate({ samples: 0, temperature: 0, reference: lm.model }),
    'temperature 0: expected a number above 0',
  ],
  ['no scorer', () => evaluate({ scorer: undefined }), 'scorer is missing: expected a scorer'],
  ['an unknown format', () => evaluate({ format: 'foo' }), 'format "foo": expected auto or chat'],
  ['evaluateReward({})', () => any(attune.evaluateReward)({}), 'checkpoint is missing'],
  ['evaluateBenchmark({})', () => any(attune.evaluateBenchmark)({}), 'model is missing'],
  ['a reward that is no function', () => any(attune.rewardFunction)(5), 'A reward function 5: expected a function'],
  ['a weight of NaN', () => attune.sumOfRewards([{ scorer, weight: Number.NaN }]), 'weight NaN: expected a number'],
  ['openDataset(5)', () => any(openDataset)(5), 'A dataset 5: expected a path'],
  ['an unknown shape', () => any(openDataset)([], { shape: 'foo' }), 'shape "foo": expected preference or'],
  ['maxSamples 1.5', () => openDataset([], { maxSamples: 1.5 }), 'maxSamples 1.5'],
  ['texts cut into pieces of 0', () => stored({ maxLength: 0 }), 'maxLength 0: expected a whole number, 1 or more'],
  [
    'epochs NaN',
    async () => new Batches((await any(stored)({})) as never, { batchSize: 1, epochs: Number.NaN }),
    'epochs NaN',
  ],
  ['mixture()', () => any(mixture)(), 'A mixture of tasks undefined'],
  ['task()', () => any(task)(), 'A task undefined: expected text'],
  ['an unknown corpus', () => any(corpusRows)('foo', { tasks: 'gcd' }), 'The kind of a corpus "foo"'],
  ['count NaN', () => [...corpusRows('sft', { tasks: 'gcd', count: Number.NaN })], 'count NaN'],
  ['figures of NaN', () => attune.figureOf([Number.NaN]), 'expected a list, each a number'],
  ['lists of two lengths', () => attune.pairedTest([1, 0], [1]), 'first has 2, second has 1'],
  ['McNemar of −1', () => attune.mcnemarExact(-1, 2), 'onlyFirst -1'],
  ['exportGguf({})', () => any(attune.exportGguf)({}), 'model is missing'],
  ['openRun()', () => any(attune.openRun)(), "A run's folder undefined: expected text"],
  ['serve()', () => any(attune.serve)(), 'serve takes a Registry'],
  ['a port that there is not', () => attune.serve(new attune.Registry(), { port: 99999 }), 'port 99999: expected'],
  ['an algorithm without a name', () => any(definePolicyAlgorithm)({}), 'name is missing'],
  ['a loss without terms', () => any(definePreferenceLoss)({ name: 'a' }), 'terms is missing: expected a function'],
])('%s', async (_, body, message) => {
  const error = await Promise.resolve()
    .then(body)
    .then(
      () => undefined,
      (reason) => reason,
    );
  expect(error).toBeInstanceOf(attune.UserError);
  expect(error.message).toContain(message);
});

it('takes Infinity for no limit, a stop id that no token has, and temperature 0 where nothing is drawn', async () => {
  const infinity = Number.POSITIVE_INFINITY;
  const dataset = await openDataset([{ text: 'abc' }], { shape: 'text', maxSamples: infinity });
  expect(await dataset.toArray()).toHaveLength(1);
  const store = (await stored({ maxLength: infinity, maxPromptLength: infinity })) as TokenStore;
  expect(store.length).toBe(1);
  await store[Symbol.asyncDispose]();
  expect(await sample({ stopIds: [-1] })).toMatchObject([[{ finish: 'length' }]]);
  expect(await evaluate({ samples: 0, temperature: 0, maxNewTokens: 2, format: 'raw' })).toMatchObject({
    summary: { prompts: 1 },
  });
});
