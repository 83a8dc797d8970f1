/** A step over one packed batch, as the trainers of reward models and of SFT take it: objective, metrics, clipping, schedule, AdamW. */
import type { Batch } from '../../src/data/index.ts';
import type { Model } from '../../src/models/index.ts';
import { AdamW } from '../../src/nn/index.ts';
import type { Objective } from '../../src/trainers/batches/objectives.ts';
import { onDevice } from '../../src/trainers/batches/step-batches.ts';
import type { TrainTask } from '../../src/trainers/loop/task.ts';
import { type Measured, measuredStep, type StepWork, unsaved } from './measured.ts';

interface BatchStep<Totals> {
  model: Model;
  objective: Objective<Totals>;
  batch: Batch;
  checkpointing: boolean;
  lr: number;
}

export async function batchSteps<Totals>(
  { model, objective, batch, checkpointing, lr }: BatchStep<Totals>,
  work: StepWork,
): Promise<Measured & { tokens: number }> {
  using optimizer = new AdamW(model.trainable(), { lr });
  const task: TrainTask = {
    ...unsaved,
    optimizer,
    totalSteps: work.steps + 1,
    async step(_, { update }) {
      const totals = objective.totals([batch]);
      await update([batch], (given) => {
        const packed = onDevice(given, model.decoder.device);
        let metrics = {};
        const lossOf = (hidden: Parameters<typeof objective.loss>[0]) => {
          const result = objective.loss(hidden, packed, given, totals);
          metrics = result.metrics;
          return result.loss;
        };
        return { ...metrics, loss: model.decoder.backward(packed, lossOf, { checkpointing }) };
      });
      return { examples: batch.examples, epoch: 0 };
    },
  };
  return { ...(await measuredStep(task, work, { lr, maxGradNorm: 10 })), tokens: batch.tokens };
}
