/** A reward model's step as `attune train reward` takes it: objective, metrics, clipping, schedule, AdamW. */
import { packBatch } from '../../src/data/index.ts';
import { initModel } from '../../src/models/index.ts';
import { AdamW } from '../../src/nn/index.ts';
import { preferenceObjective } from '../../src/trainers/batches/objectives.ts';
import { onDevice } from '../../src/trainers/batches/step-batches.ts';
import type { TrainTask } from '../../src/trainers/loop/task.ts';
import { CPU_LENGTHS, GPU_LENGTHS, LLAMA_15M, QWEN3_06B, randomIds } from '../shapes.ts';
import { fastestStep, type Measured, type StepWork, unsaved } from './measured.ts';

export async function rewardSteps(work: StepWork, checkpointing: boolean): Promise<Measured & { tokens: number }> {
  const shape = work.cuda ? QWEN3_06B : LLAMA_15M;
  const lengths = work.cuda ? GPU_LENGTHS : CPU_LENGTHS;
  const device = work.cuda ? 'cuda:0' : 'cpu';
  using model = initModel(shape, { seed: 0, device });
  model.addHead('reward', 1);
  model.decoder.requiresGrad_();
  const objective = preferenceObjective(model, {});
  const sequences = lengths.map((length, i) => {
    const ids = Int32Array.from(randomIds(length, shape.vocab_size, i));
    return { ids, promptLength: 0, spans: Int32Array.of(0, length), marks: new Int32Array(0) };
  });
  const half = sequences.length / 2;
  const facts = { label: true, margin: 0, group: 0, source: -1 };
  const pairs = sequences.slice(0, half).map((chosen, example) => ({
    sequences: [chosen, sequences[half + example] as typeof chosen],
    example,
    ...facts,
  }));
  const batch = packBatch(pairs);
  using optimizer = new AdamW(model.trainable(), { lr: 1e-5 });
  const task: TrainTask = {
    ...unsaved,
    optimizer,
    totalSteps: work.steps + 1,
    async step(_, { update }) {
      const totals = objective.totals([batch]);
      await update([batch], (given) => {
        const packed = onDevice(given, device);
        let metrics = {};
        const lossOf = (hidden: Parameters<typeof objective.loss>[0]) => {
          const result = objective.loss(hidden, packed, given, totals);
          metrics = result.metrics;
          return result.loss;
        };
        return { ...metrics, loss: model.decoder.backward(packed, lossOf, { checkpointing }) };
      });
      return { examples: half, epoch: 0 };
    },
  };
  return { ...(await fastestStep(task, work, { lr: 1e-5, maxGradNorm: 10 })), tokens: batch.tokens };
}
