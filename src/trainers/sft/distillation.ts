/**
 * Distillation as an objective of supervised fine-tuning: the teacher reads the same batch, and the student learns its
 * distributions.
 */
import { distillationLoss } from '../../algorithms/index.ts';
import { rowsBefore } from '../../models/decoder/batch.ts';
import { frozenRows, tokenDivergence } from '../../models/decoder/logprobs.ts';
import { type Model, tokenLogprobs } from '../../models/index.ts';
import { integers, noGrad } from '../../tensor/index.ts';
import { type SftObjective, tokenObjective } from '../batches/objectives.ts';

export interface DistillationConfig {
  assistantOnly: boolean;
  teacherTopK: number;
  teacherTemperature: number;
  distillShare: number;
}

/** (1 − α)·NLL + α·T²·KL(teacher‖student), averaged over the trained tokens. */
export function distillationObjective(model: Model, teacher: Model, config: DistillationConfig): SftObjective {
  const { assistantOnly, teacherTopK: top, teacherTemperature: temperature, distillShare: share } = config;
  return tokenObjective(!assistantOnly, (hidden, packed, tokens, totals) => {
    const read = () => tokenLogprobs(model.decoder, hidden, packed, tokens);
    // The NLL is always measured. Its gradient is computed only if it has a share in the loss.
    const { logp, entropy } = share === 1 ? noGrad(read) : read();
    const targets = packed.ids.indexSelect(0, integers(tokens, { device: packed.ids.device }));
    const compare = () =>
      tokenDivergence(
        { decoder: model.decoder, rows: rowsBefore(hidden, packed, tokens) },
        { decoder: teacher.decoder, rows: frozenRows(teacher.decoder, packed, tokens) },
        targets,
        { temperature, top },
      );
    const { divergence } = share === 0 ? noGrad(compare) : compare();
    return distillationLoss({ kl: divergence, lp: logp, entropy }, { share, temperature }, totals);
  });
}
