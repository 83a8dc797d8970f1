/** A step of SFT on one long sequence, all its tokens learnt: 32,768 tokens on CUDA, 1,024 on the CPU. */
import { packBatch } from '../../src/data/index.ts';
import { initModel } from '../../src/models/index.ts';
import { sftObjective } from '../../src/trainers/batches/objectives.ts';
import { randomIds } from '../support/shapes.ts';
import { batchSteps } from './batch.ts';
import type { Measured, StepWork } from './measured.ts';

export async function longSteps(work: StepWork, checkpointing: boolean): Promise<Measured & { tokens: number }> {
  const { shape } = work;
  const length = work.cuda ? 32_768 : 1024;
  using model = initModel(shape, { seed: 0, device: work.cuda ? 'cuda:0' : 'cpu' });
  model.decoder.requiresGrad_();
  const ids = Int32Array.from(randomIds(length, shape.vocab_size, 0));
  const sequence = { ids, promptLength: 0, spans: Int32Array.of(0, length), marks: new Int32Array(0) };
  const facts = { label: true, margin: 0, group: 0, source: -1 };
  const batch = packBatch([{ sequences: [sequence], example: 0, ...facts }]);
  return await batchSteps(
    { model, objective: sftObjective(model, { allTokens: true }), batch, checkpointing, lr: 1e-5 },
    work,
  );
}
