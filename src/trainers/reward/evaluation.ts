/** Evaluates a reward model on held-out examples during training. */
import { type Batch, packBatch, type TokenStore } from '../../data/index.ts';
import { headOutputs, type Model, type ScoredSequence } from '../../models/index.ts';
import { Random } from '../../random.ts';
import {
  areaUnderCurve,
  type GradedScore,
  pairwiseAccuracy,
  type RewardType,
  topAccuracy,
} from '../../rewards/index.ts';
import { scoreOf } from '../../rewards/reward-model.ts';
import { evaluateBatches } from '../batches/batch-task.ts';
import { evalSample } from '../batches/eval-sample.ts';
import { lastTokens, type Objective } from '../batches/objectives.ts';
import type { RewardConfig } from './config.ts';

type EvalConfig = Pick<RewardConfig, 'type' | 'evalNumBatches' | 'evalBatchSize' | 'evalSeed'>;
/** Enough for a mean and a standard deviation, and still quick. */
const mostReferences = 128;

type Evaluation = () => Promise<Record<string, number>>;

export async function rewardEvaluation(
  config: EvalConfig,
  model: Model,
  objective: Objective<object>,
  store: TokenStore,
): Promise<Evaluation> {
  if (config.type === 'outcome') return outcomeEvaluation(config, model, objective, store);
  const { evalBatchSize: batchSize, evalNumBatches: batches, evalSeed: seed } = config;
  return async () => {
    const sample = await evalSample(store, { batchSize, batches, seed });
    const metrics = await evaluateBatches(model, objective, sample);
    // A process reward model decides at each step, and an example has several, so examples are not its sample size.
    return config.type === 'process' ? metrics : { ...metrics, examples: countOf(sample) };
  };
}

const countOf = (batches: readonly Batch[]) => batches.reduce((sum, { examples }) => sum + examples, 0);

/** All solutions of a problem are drawn together, so that they can be ranked. */
async function outcomeEvaluation(
  config: EvalConfig,
  model: Model,
  objective: Objective<object>,
  store: TokenStore,
): Promise<Evaluation> {
  const problems = await recordsByGroup(store);
  return async () => {
    const random = new Random(config.evalSeed, 0);
    const groups: GradedScore[][] = [];
    const batches: Batch[] = [];
    for (const indices of drawnProblems(problems, config.evalNumBatches * config.evalBatchSize, random)) {
      const batch = packBatch(await store.records(indices));
      const scores = batchScores(model, 'outcome', batch);
      groups.push(scores.map((score, i) => ({ score, correct: batch.labels[i] === 1 })));
      batches.push(batch);
    }
    const ranked = {
      top1_accuracy: topAccuracy(groups),
      pairwise_accuracy: pairwiseAccuracy(groups),
      auc: areaUnderCurve(groups.flat()),
    };
    const known = Object.entries(ranked).filter((entry): entry is [string, number] => entry[1] !== undefined);
    const metrics = await evaluateBatches(model, objective, batches);
    return { ...metrics, ...Object.fromEntries(known), examples: countOf(batches) };
  };
}

/**
 * Whole problems until they hold `wanted` solutions. A set no larger is taken whole, a larger one sampled (see
 * evalSample).
 */
function* drawnProblems(problems: number[][], wanted: number, random: Random): Generator<number[]> {
  if (problems.flat().length <= wanted) return yield* problems;
  for (let left = wanted; left > 0; ) {
    const indices = problems[random.int(0, problems.length - 1)] as number[];
    yield indices;
    left -= indices.length;
  }
}

async function recordsByGroup(store: TokenStore): Promise<number[][]> {
  const groups = new Map<number, number[]>();
  for (let start = 0; start < store.length; start += 256) {
    const indices = Array.from({ length: Math.min(256, store.length - start) }, (_, i) => start + i);
    for (const [i, { group }] of (await store.records(indices)).entries())
      groups.set(group, [...(groups.get(group) ?? []), start + i]);
  }
  return [...groups.values()];
}

/** The score of each sequence in a batch. */
export function batchScores(model: Model, type: RewardType, batch: Batch): number[] {
  const sequences = lastTokens(batch.cuSeqlens).map((last, s): ScoredSequence => {
    const start = batch.cuSeqlens[s] as number;
    const ids = batch.ids.subarray(start, last + 1);
    const ends = batch.stepPositions.filter((place) => place >= start && place <= last);
    const places = type === 'process' && ends.length > 0 ? Array.from(ends, (place) => place - start) : [last - start];
    return { ids, places, promptLength: batch.promptLengths[s] as number };
  });
  return headOutputs(model, sequences).map((output) => scoreOf(type, output));
}

/**
 * Scores of held-out responses. Their mean and spread are stored in the checkpoint. Uses no shared random generator.
 */
export async function referenceScores(config: EvalConfig, model: Model, store: TokenStore): Promise<number[]> {
  const { evalBatchSize: batchSize, evalNumBatches, evalSeed } = config;
  const batches = Math.min(evalNumBatches, Math.ceil(mostReferences / batchSize));
  const sample = await evalSample(store, { batchSize, batches, seed: evalSeed + 1 });
  return sample.flatMap((batch) => batchScores(model, config.type, batch));
}
