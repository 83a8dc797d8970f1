/** Training on labelled text, whatever the labels: batches of tokens in, an objective on the model's hidden states. */
import type { Batch, BatchState } from '../../data/index.ts';
import { responsesOf } from '../../models/decoder/responses.ts';
import { type Model, type PackedBatch, packShared, withoutDropout } from '../../models/index.ts';
import { AdamW } from '../../nn/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { TrainTask } from '../loop/loop.ts';
import { UpdateSums } from '../loop/sums.ts';
import { restoreForTraining, saveForTraining } from '../setup.ts';
import type { Objective } from './objectives.ts';
import { onDevice, type StepBatches } from './step-batches.ts';

export interface BatchTaskParts<Totals> {
  model: Model;
  tokenizer: Tokenizer;
  objective: Objective<Totals>;
  steps: StepBatches;
  optimizer: { lr: number; weightDecay: number };
  checkpointing: boolean;
  evaluate?: (step: number) => Promise<Record<string, number>>;
  /** Notes to leave in the checkpoint's config.json. */
  beforeSave?: (optimizerSteps: number) => void | Promise<void>;
}

export type BatchTask<Totals> = TrainTask<Batch, Totals> & { readonly optimizer: AdamW };

export function batchTask<Totals>(parts: BatchTaskParts<Totals>): BatchTask<Totals> {
  const { model, objective, steps, checkpointing } = parts;
  let started = 0;
  let tokens = 0;
  const optimizer = new AdamW(model.trainable(), parts.optimizer);
  return {
    optimizer,
    totalSteps: steps.totalSteps,
    async plan(step) {
      started = performance.now();
      const batches = await steps.next(step);
      tokens = batches.reduce((sum, batch) => sum + batch.tokens, 0);
      const examples = batches.reduce((sum, batch) => sum + batch.examples, 0);
      return { updates: [{ batches, totals: objective.totals(batches) }], examples, epoch: steps.epoch };
    },
    backward: (batch, totals) => shareOf(parts, batch, totals, checkpointing),
    afterUpdate(metrics) {
      return { ...metrics, tokens, tokens_per_second: (1000 * tokens) / (performance.now() - started) };
    },
    ...(parts.evaluate === undefined ? {} : { evaluate: parts.evaluate }),
    async saveModel(folder) {
      await parts.beforeSave?.(optimizer.steps);
      await saveForTraining(model, parts.tokenizer, folder);
    },
    loadModel: (folder) => restoreForTraining(model, folder),
    state: () => steps.state,
    restore: (state) => steps.restore(state as BatchState),
  };
}

function packFor(
  objective: Pick<Objective<unknown>, 'sharesPrompts'>,
  batch: Batch,
  { decoder, device }: Model,
): PackedBatch {
  return objective.sharesPrompts && decoder.sharesPrefixes
    ? packShared(responsesOf(batch), device)
    : onDevice(batch, device);
}

/** Forward and backward of one micro-batch; its share of the step's metrics. */
function shareOf<Totals>(
  { model, objective }: Pick<BatchTaskParts<Totals>, 'model' | 'objective'>,
  batch: Batch,
  totals: Totals,
  checkpointing: boolean,
) {
  const packed = packFor(objective, batch, model);
  let metrics = {};
  const loss = model.decoder.backward(
    packed,
    (hidden) => {
      const result = objective.loss(hidden, packed, batch, totals);
      metrics = result.metrics;
      return result.loss;
    },
    { checkpointing },
  );
  return { ...metrics, loss };
}

/** The objective's metrics over batches that come one after another, as if they were one step; without gradient. */
export async function evaluateBatches<Totals>(
  model: Model,
  objective: Objective<Totals>,
  batches: readonly Batch[],
): Promise<Record<string, number>> {
  const totals = objective.totals(batches);
  const sums = new UpdateSums();
  withoutDropout(model.decoder, () => {
    for (const batch of batches) {
      sums.add(
        scope(() =>
          noGrad(() => {
            const packed = packFor(objective, batch, model);
            const { loss, metrics } = objective.loss(model.decoder.forward(packed), packed, batch, totals);
            return { ...metrics, loss };
          }),
        ),
      );
    }
  });
  return sums.read();
}
