/** A reward model's step as `attune train reward` takes it: objective, metrics, clipping, schedule, AdamW. */
import { packBatch } from '../../src/data/index.ts';
import { initModel } from '../../src/models/index.ts';
import { preferenceObjective } from '../../src/trainers/batches/objectives.ts';
import { CPU_LENGTHS, GPU_LENGTHS, randomIds } from '../support/shapes.ts';
import { batchSteps } from './batch.ts';
import type { Measured, StepWork } from './measured.ts';

export async function rewardSteps(work: StepWork, checkpointing: boolean): Promise<Measured & { tokens: number }> {
  const { shape } = work;
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
  return await batchSteps({ model, objective, batch, checkpointing, lr: 1e-5 }, work);
}
