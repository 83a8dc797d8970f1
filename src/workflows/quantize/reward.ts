/**
 * Measures what quantisation costs a reward model: original and quantised model on the same batches.
 *
 *     const { results } = await quantizeReward({ checkpoint: 'checkpoints/rm/run/final', quantType: 'int4' });
 *     results.comparison.accuracy_drop;
 */

import { setImmediate as turn } from 'node:timers/promises';
import type { z } from 'zod';
import { exactAccuracies } from '../../algorithms/metrics.ts';
import type { Batch, TokenStore } from '../../data/index.ts';
import { UserError } from '../../errors.ts';
import { deviceOf, dtypeOf, type Model, withoutDropout } from '../../models/index.ts';
import { correlation } from '../../rewards/error-analysis.ts';
import { loadRewardModel, type RewardNotes, type RewardType } from '../../rewards/index.ts';
import { resolveConfig, resolveInput } from '../../runs/index.ts';
import { type CorpusKind, corpusRows } from '../../tasks/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { allBatches, evalSample } from '../../trainers/batches/eval-sample.ts';
import {
  type Objective,
  outcomeObjective,
  preferenceObjective,
  processObjective,
} from '../../trainers/batches/objectives.ts';
import { onDevice } from '../../trainers/batches/step-batches.ts';
import { rewardSchema } from '../../trainers/reward/config.ts';
import { batchScores } from '../../trainers/reward/evaluation.ts';
import { rewardTokens } from '../../trainers/reward/reward.ts';
import { type QuantizeRewardConfig, quantizeRewardSchema } from './config.ts';
import { outputFolder, trainedWith, writeOutput } from './folder.ts';
import { layerLosses } from './layers.ts';
import { rewardCharts, rewardReport } from './report.ts';
import {
  namedByType,
  type QuantizeOptions,
  type QuantizeRewardResults,
  type RewardMeasurement,
  type ScorePair,
} from './results.ts';
import { sizeOf, stopwatch } from './size.ts';
import { quantisedTwin } from './twin.ts';

/** Quantises a reward model to 8 or 4 bits, measures its accuracy against the original, and saves it. */
export async function quantizeReward(
  input: z.input<typeof quantizeRewardSchema>,
  options: QuantizeOptions = {},
): Promise<{ results: QuantizeRewardResults; folder: string; report: string }> {
  const config = resolveInput(quantizeRewardSchema, input);
  const { progress, signal } = options;
  const folder = outputFolder(config.checkpoint, config.quantType, config.outputDir);
  const device = deviceOf(config.device);
  const load = { device, dtype: dtypeOf(config.dtype, device), progress };
  using scorer = await loadRewardModel(config.checkpoint, load);
  const { model: original, tokenizer, notes } = scorer;
  const batches = await heldOutBatches(config, notes, tokenizer, options);
  using twin = quantisedTwin(original, config.quantType, progress);
  const { quantised } = twin;
  const measured = {
    original: await measure('original', original, notes.type, batches, options),
    quantized: await measure(config.quantType, quantised, notes.type, batches, options),
  };
  signal?.throwIfAborted();
  const some = batches.slice(0, Math.ceil(400 / config.evalBatchSize));
  const scores = await bothScores(original, quantised, notes.type, some, options);
  const first = batches[0] as Batch;
  const ids = Array.from({ length: Math.min(8, first.sequences) }, (_, i) =>
    first.ids.subarray(first.cuSeqlens[i], first.cuSeqlens[i + 1]),
  );
  const results: QuantizeRewardResults = {
    model: config.checkpoint,
    type: notes.type,
    quant_type: config.quantType,
    ...measured,
    comparison: comparison(measured, scores),
    layers: layerLosses(original, quantised, ids),
    model_saved: !config.skipSave,
  };
  const report = rewardReport(results);
  await writeOutput(folder, {
    results: namedByType(results),
    report,
    charts: rewardCharts(results, scores),
    title: `${config.checkpoint} in ${config.quantType}`,
    model: config.skipSave ? null : { model: quantised, tokenizer },
  });
  return { results, folder, report };
}

function comparison(
  { original, quantized }: Record<'original' | 'quantized', RewardMeasurement>,
  scores: readonly ScorePair[],
): QuantizeRewardResults['comparison'] {
  const drop = original.accuracy - quantized.accuracy;
  const squares = scores.reduce((sum, pair) => sum + (pair.original - pair.quantised) ** 2, 0);
  return {
    accuracy_drop: drop,
    accuracy_drop_relative_pct: original.accuracy > 0 ? (100 * drop) / original.accuracy : 0,
    loss_increase: quantized.loss - original.loss,
    size_reduction_pct: 100 * (1 - quantized.size_bytes / original.size_bytes),
    speedup_eval: original.eval_seconds / quantized.eval_seconds,
    score_correlation: correlation(
      scores.map((pair) => pair.original),
      scores.map((pair) => pair.quantised),
    ),
    score_rms_difference: Math.sqrt(squares / Math.max(1, scores.length)),
  };
}

const kinds: Record<RewardType, CorpusKind> = { preference: 'preference', outcome: 'graded', process: 'steps' };

/** The given data, or the data held out in the checkpoint's training. */
async function heldOutBatches(
  config: QuantizeRewardConfig,
  notes: RewardNotes,
  tokenizer: Tokenizer,
  { progress, signal }: QuantizeOptions,
): Promise<Batch[]> {
  const { dataset, task, split, subset, onBadRow, maxLength, seed, evalBatchSize: batchSize } = config;
  const { evalNumBatches: batches } = config;
  if (dataset !== undefined && task !== undefined)
    throw new UserError('Say on what: either --dataset, or --task for problems that are generated.');
  const trained = await trainedWith(config.checkpoint);
  if (dataset === undefined && task === undefined && trained.dataset === undefined && trained.evalDataset === undefined)
    throw new UserError(
      `${config.checkpoint} does not say what it was trained on: name data with --dataset, or --task.`,
    );
  const { type, stripThinking, format: promptFormat, stepSeparator } = notes;
  const reading = { model: config.checkpoint, type, stripThinking, promptFormat, stepSeparator, maxLength };
  const given = dataset !== undefined || task !== undefined;
  const flags = given ? { dataset, split, subset, onBadRow, validationSplit: 0 } : {};
  const { config: data } = resolveConfig(rewardSchema, {
    ...(given ? {} : { checkpoint: trained }),
    flags: { ...reading, ...dropUndefined(flags) },
  });
  const rows =
    task === undefined
      ? undefined
      : [...corpusRows(kinds[type], { tasks: task, seed, count: batches * batchSize, part: 'test', perPrompt: 1 })];
  const sets = await rewardTokens(data, tokenizer, {
    progress,
    signal,
    cache: false,
    ...(rows === undefined ? {} : { dataset: rows as unknown as Record<string, unknown>[] }),
  });
  try {
    const store = sets.validation ?? sets.train;
    if (store.length === 0) throw new UserError('There are no examples to measure on.');
    return await batchesOf(store, { batchSize, batches, seed });
  } finally {
    await sets.close();
  }
}

const dropUndefined = (record: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined));

async function batchesOf(
  store: TokenStore,
  options: { batchSize: number; batches: number; seed: number },
): Promise<Batch[]> {
  if (store.length <= options.batchSize * options.batches) return Array.fromAsync(allBatches(store, options.batchSize));
  return evalSample(store, options);
}

const objectives: Record<RewardType, (model: Model) => Objective<never>> = {
  preference: (model) => preferenceObjective(model, {}) as Objective<never>,
  outcome: (model) => outcomeObjective(model) as Objective<never>,
  process: (model) => processObjective(model) as Objective<never>,
};

/** Loss and accuracy as training defines them, over all batches as if they were one step. */
async function measure(
  name: string,
  model: Model,
  type: RewardType,
  batches: readonly Batch[],
  { progress, signal }: QuantizeOptions,
): Promise<RewardMeasurement> {
  const objective = objectives[type](model) as Objective<object>;
  const totals = objective.totals(batches);
  const sums: Record<string, number> = {};
  const run = (batch: Batch) =>
    withoutDropout(model.decoder, () =>
      scope(() =>
        noGrad(() => {
          const packed = onDevice(batch, model.device);
          const { loss, metrics } = objective.loss(model.decoder.forward(packed), packed, batch, totals);
          return Object.entries({ ...metrics, loss }).map(([key, value]) => [key, value.item()] as const);
        }),
      ),
    );
  run(batches[0] as Batch); // warm-up: the first pass includes one-time costs
  const examples = batches.reduce((sum, batch) => sum + batch.examples, 0);
  const bar = progress?.start(`evaluating ${name}`, examples, 'examples');
  const watch = stopwatch();
  for (const batch of batches) {
    signal?.throwIfAborted();
    for (const [key, value] of run(batch)) sums[key] = (sums[key] ?? 0) + value;
    bar?.advance(batch.examples);
    await turn();
  }
  const seconds = watch();
  bar?.done();
  const exact = exactAccuracies(sums, objective.decisions?.(totals));
  return {
    accuracy: exact.accuracy ?? exact.step_accuracy ?? Number.NaN,
    loss: sums.loss ?? Number.NaN,
    examples,
    ...sizeOf(model),
    eval_seconds: seconds,
    examples_per_second: examples / seconds,
  };
}

async function bothScores(
  original: Model,
  quantised: Model,
  type: RewardType,
  batches: readonly Batch[],
  { signal }: QuantizeOptions,
): Promise<ScorePair[]> {
  const pairs: ScorePair[] = [];
  for (const batch of batches) {
    signal?.throwIfAborted();
    const other = batchScores(quantised, type, batch);
    for (const [i, score] of batchScores(original, type, batch).entries())
      pairs.push({ original: score, quantised: other[i] as number });
    await turn();
  }
  return pairs;
}
