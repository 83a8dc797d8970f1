/** A training task over batches of tokens, with an objective on the model's hidden states. */
import { MetricSums } from '../../algorithms/index.ts';
import { exactAccuracies } from '../../algorithms/metrics.ts';
import type { Batch } from '../../data/index.ts';
import { evenBatches } from '../../data/tokens/even.ts';
import { computeDealt } from '../../dist/deal.ts';
import { makeOptimizer, type Shard, type WorldAdamW } from '../../dist/shard/optimizer.ts';
import { joinWorld, soloWorld, type World } from '../../dist/world.ts';
import { packShared } from '../../models/decoder/batch.ts';
import { responsesOf } from '../../models/decoder/responses.ts';
import { type Model, type PackedBatch, withoutDropout } from '../../models/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { BatchMetrics, TrainTask } from '../loop/task.ts';
import { combined } from '../loop/update.ts';
import { restoreForTraining, saveForTraining } from '../setup.ts';
import type { Objective } from './objectives.ts';
import { onDevice, type StepBatches, type StepState } from './step-batches.ts';

export interface BatchTaskParts<Totals> {
  model: Model;
  tokenizer: Tokenizer;
  objective: Objective<Totals>;
  steps: StepBatches;
  /** The fingerprint of the training examples. */
  dataFingerprint?: string;
  heldOutFingerprint?: string;
  optimizer: { lr: number; weightDecay: number; shard?: Shard };
  /** The processes that train together. Default: this one alone. */
  world?: World;
  checkpointing: boolean;
  evaluate?: (step: number) => Promise<Record<string, number>>;
  /** Called before each save, to write notes to the checkpoint's config.json. */
  beforeSave?: (optimizerSteps: number) => void | Promise<void>;
}

export type BatchTask = TrainTask & { readonly optimizer: WorldAdamW };

export function batchTask<Totals>(parts: BatchTaskParts<Totals>): BatchTask {
  const { model, objective, steps } = parts;
  const { lr, weightDecay, shard = 'none' } = parts.optimizer;
  const optimizer = makeOptimizer(
    model.trainable(),
    { lr, weightDecay },
    {
      world: parts.world ?? soloWorld,
      shard,
      base: model.decoder.tensors(),
    },
  );
  return {
    optimizer,
    decoder: model.decoder,
    lossTellsFit: true,
    get limits() {
      return steps.limits;
    },
    get totalSteps() {
      return steps.totalSteps;
    },
    dataFingerprint: parts.dataFingerprint,
    heldOutFingerprint: parts.heldOutFingerprint,
    async step(_number, { update }) {
      const started = performance.now();
      const batches = evenBatches(await steps.next());
      const { epoch } = steps;
      const totals = objective.totals(batches);
      await update(batches, (batch) => backwardBatch(parts, batch, totals), {
        cost: (batch) => batch.tokens,
        decisions: objective.decisions?.(totals),
      });
      const tokens = batches.reduce((sum, batch) => sum + batch.tokens, 0);
      const tokensPerSecond = (1000 * tokens) / (performance.now() - started);
      return { examples: exampleCount(batches), epoch, metrics: { tokens, tokens_per_second: tokensPerSecond } };
    },
    ...(parts.evaluate === undefined ? {} : { evaluate: parts.evaluate }),
    async saveModel(folder) {
      await parts.beforeSave?.(optimizer.steps);
      await saveForTraining(model, parts.tokenizer, folder);
    },
    loadModel: (folder) => restoreForTraining(model, folder),
    state: () => steps.state,
    restore: (state) => steps.restore(state as StepState),
  };
}

function packFor(
  objective: Pick<Objective<unknown>, 'sharesPrompts'>,
  batch: Batch,
  { decoder, device }: Model,
): PackedBatch {
  return objective.sharesPrompts && decoder.longestShared > 0
    ? packShared(responsesOf(batch), decoder)
    : onDevice(batch, device);
}

const exampleCount = (batches: readonly Batch[]) => batches.reduce((sum, batch) => sum + batch.examples, 0);

/** Forward and backward of one micro-batch. Returns its share of the step's metrics. */
export function backwardBatch<Totals>(
  { model, objective, checkpointing }: Pick<BatchTaskParts<Totals>, 'model' | 'objective' | 'checkpointing'>,
  batch: Batch,
  totals: Totals,
): BatchMetrics {
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

/** The objective's metrics over all batches as one step, without gradient. Batches are dealt over the ranks. */
export async function evaluateBatches<Totals>(
  model: Model,
  objective: Objective<Totals>,
  batches: readonly Batch[],
): Promise<Record<string, number>> {
  const totals = objective.totals(batches);
  const measure = (batch: Batch) => {
    const sums = new MetricSums();
    scope(() =>
      noGrad(() => {
        const packed = packFor(objective, batch, model);
        const { loss, metrics } = objective.loss(model.decoder.forward(packed), packed, batch, totals);
        sums.add({ ...metrics, loss });
      }),
    );
    return sums.read();
  };
  const world = await joinWorld();
  const cost = ({ tokens }: Batch) => tokens;
  const shares = await withoutDropout(model.decoder, () => computeDealt(world, batches, cost, measure));
  return exactAccuracies(combined(shares), objective.decisions?.(totals));
}
