/** One rank of a test's world, or a process alone: evaluations and a comparison; rank 0 writes what they came to. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { joinWorld } from '../../src/dist/world.ts';
import { evaluateBenchmark } from '../../src/evaluate/benchmark/benchmark.ts';
import { evaluatePolicy } from '../../src/evaluate/policy.ts';
import { evaluateRewardSuite } from '../../src/evaluate/ranked/reward-suite.ts';
import { evaluateReward } from '../../src/evaluate/reward.ts';
import { loadModel, loadTokenizer } from '../../src/models/index.ts';
import { rewardFunction } from '../../src/rewards/index.ts';
import { compareMethods } from '../../src/workflows/compare/compare.ts';

const [folder, output] = process.argv.slice(2) as [string, string];
const world = await joinWorld();
const [path, reward] = [join(folder, 'model'), join(folder, 'reward')];
using model = await loadModel(path);
using other = await loadModel(join(folder, 'other'));
const tokenizer = await loadTokenizer({ model: path });

const even = rewardFunction(
  (items) => items.map(({ response }) => ((response.codePointAt(0) ?? 1) % 2 === 0 ? 1 : 0)),
  { name: 'even' },
);
const colours = ['red', 'a longer question about blue', 'green', 'yellow or not', 'violet', 'no', 'good'];
const policy = await evaluatePolicy({
  ...{ model, tokenizer, scorer: even, samples: 3, maxNewTokens: 6, seed: 5, reference: other },
  prompts: colours.map((content) => ({ messages: [{ role: 'user', content }] })),
  opponent: { model: other, tokenizer },
  format: 'raw',
});

const player = { model, tokenizer };
const asked = { model: player, prompt: 'raw' as const, shots: 0, seed: 3 };
const written = await evaluateBenchmark({
  ...{ ...asked, k: 2, maxNewTokens: 5 },
  suite: colours.map((question, i) => ({ question, answer: String(i) })),
});
const chosen = await evaluateBenchmark({
  ...asked,
  suite: Array.from({ length: 70 }, (_, i) => ({
    question: `${colours[i % 7]} ${i}`,
    choices: ['yes', 'no', 'good bad'],
    answer: i % 3,
  })),
});

const ranked = Array.from({ length: 90 }, (_, i) => ({
  prompt: `${colours[i % 7]} ${i}`,
  chosen: `yes ${i} good good`,
  rejected: `no ${i}`,
}));
const pairs = await evaluateReward({ checkpoint: reward, dataset: ranked });
const suite = await evaluateRewardSuite({ scorer: reward, suite: ranked });

const { results, start } = await compareMethods({
  ...{ model: path, methods: ['grpo', 'dpo'], dataset: join(folder, 'prompts.jsonl'), promptFormat: 'raw' },
  ...{ rewardModule: join(folder, 'even.mjs'), steps: 2, judgements: 1, evalNumPrompts: 2, evalSamples: 2, seeds: [1] },
  ...{ groupSize: 4, batchSize: 4, gradAccum: 1, maxNewTokens: 2, lr: 0.01, lrSchedule: 'constant', eosPenalty: 0 },
  ...{ topP: 1, outputDir: output, shard: 'full' as const },
});
const judged = Object.fromEntries(
  Object.entries(results.methods).map(([name, { quality, stability }]) => [name, { quality, kl: stability.final_kl }]),
);
const told = { policy, written, chosen, pairs, suite, judged, start };
if (world.isFirst) writeFileSync(`${output}.json`, JSON.stringify(told));
await world.meet('the end');
