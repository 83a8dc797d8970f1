/** Forward and backward of one micro-batch of rollouts: from the model's hidden states to the algorithm's loss. */
import {
  type Metrics,
  type PolicyAlgorithm,
  type PolicyOptions,
  type StepTotals,
  segmentsOf,
  usesTeacherKl,
} from '../../algorithms/index.ts';
import { AttuneError } from '../../errors.ts';
import { packResponses } from '../../models/decoder/responses.ts';
import { type Model, tokenLogprobs } from '../../models/index.ts';
import { packedTensor } from '../../rollouts/batches.ts';
import type { Rollout } from '../../rollouts/rollout.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { BatchMetrics } from '../loop/task.ts';
import { compareWithTeacher, comparisonMetrics, teacherRows } from '../teacher/responses.ts';
import type { PolicyConfig } from './config.ts';
import type { Critic } from './critic.ts';
import { startSamplerGap } from './sampler-gap.ts';

export interface LossContext {
  config: Pick<
    PolicyConfig,
    'temperature' | 'oldLogprobs' | 'truncatedRatio' | 'maxSamplerGap' | 'cacheDtype' | 'gradientCheckpointing'
  >;
  algorithm: PolicyAlgorithm;
  options: PolicyOptions;
  model: Model;
  critic: Critic | null;
  /** null if the algorithm needs none. */
  teacher?: Model | null;
  step: number;
  /** Denominators over all micro-batches of the update. */
  totals: StepTotals;
  /** Whether the weights have not changed since sampling. */
  isFirst: boolean;
}

/** Adds the micro-batch's share of the gradient; returns its share of the metrics. */
export function backwardRollouts(rollouts: readonly Rollout[], context: LossContext): BatchMetrics {
  const { algorithm, options, config, critic, totals } = context;
  const { decoder } = context.model;
  const packed = packResponses(rollouts, decoder);
  // The teacher runs first, before the policy's own activations occupy memory.
  const teacher = usesTeacherKl(algorithm, options) ? taught(rollouts, context) : null;
  let metrics: Metrics = {};
  let gap: ReturnType<typeof startSamplerGap> | undefined;
  const loss = decoder.backward(
    packed.batch,
    (hidden) => {
      const { logp: lp, entropy } = tokenLogprobs(decoder, hidden, packed.batch, packed.tokens, config.temperature);
      const of = (pick: Parameters<typeof packedTensor>[1]) => packedTensor(rollouts, pick, lp);
      const sampled = of(({ lpOld }) => lpOld);
      if (context.isFirst) gap = startSamplerGap(lp, sampled, decoder.dtype, context);
      const batch = {
        lp,
        lpOld: drawnLogprobs(rollouts, oldLogprobs(rollouts, lp, sampled, context), context),
        advantages: of(({ advantages }) => advantages),
        segments: segmentsOf(packed.lengths, lp),
        entropy,
        ...(rollouts[0]?.lpRef === undefined ? {} : { lpRef: of(({ lpRef }) => lpRef) }),
      };
      const value = critic && {
        values: critic.values(packed, hidden),
        valuesOld: of(({ values }) => values),
        returns: of(({ returns }) => returns),
      };
      const compared = teacher && compareWithTeacher(context.model, packed, hidden, teacher, config.temperature);
      const distilled = compared && { teacherKl: compared.divergence };
      const result = algorithm.loss({ ...batch, ...value, ...distilled }, options, totals);
      metrics = { ...result.metrics, ...(compared && comparisonMetrics(compared, totals)) };
      return result.loss;
    },
    { checkpointing: config.gradientCheckpointing },
  );
  return { ...metrics, ...gap?.read(), loss };
}

function taught(rollouts: readonly Rollout[], { teacher, algorithm }: LossContext): { model: Model; rows: Tensor } {
  if (!teacher) throw new AttuneError(`${algorithm.name} learns from a teacher, and there is none.`);
  return { model: teacher, rows: teacherRows(teacher, rollouts) };
}

/**
 * lpOld is the sampler's by default. With --old-logprobs trainer it is recomputed by the trainer, so that the first
 * update has a ratio of exactly 1.
 */
function oldLogprobs(rollouts: readonly Rollout[], lp: Tensor, sampled: Tensor, context: LossContext): Tensor {
  if (context.config.oldLogprobs === 'sampler') return sampled;
  if (context.isFirst) return lp.detach();
  return packedTensor(rollouts, ({ lpTrainer }) => lpTrainer, lp);
}

/**
 * Under top-p, top-k or min-p a token is drawn with probability π/kept, where `kept` is the mass left after truncation.
 * With `truncatedRatio` π/kept is the denominator of the ratio. Without it the denominator is π over the whole
 * vocabulary.
 */
function drawnLogprobs(rollouts: readonly Rollout[], whole: Tensor, { config }: LossContext): Tensor {
  if (!config.truncatedRatio || rollouts[0]?.cutMass === undefined) return whole;
  const logKept = packedTensor(rollouts, ({ cutMass }) => cutMass?.map((cut) => Math.log(1 - cut)), whole);
  return whole.sub(logKept);
}
