/**
 * Compares a policy's own responses with a teacher: in the full-vocabulary loss, in the metrics of a step, and in
 * evaluations. All log-probs are at the sampling temperature.
 */
import { type Metrics, meanOf, type StepTotals } from '../../algorithms/index.ts';
import { computeDealt } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { rowsBefore } from '../../models/decoder/batch.ts';
import { frozenRows, type TokenDivergence, tokenDivergence } from '../../models/decoder/logprobs.ts';
import { type PackedResponses, packResponses } from '../../models/decoder/responses.ts';
import type { Model } from '../../models/index.ts';
import { byTokens, type ScoreOptions, withTokens } from '../../rollouts/batches.ts';
import { packedNumbers, type Rollout } from '../../rollouts/rollout.ts';
import { integers, noGrad, scope, type Tensor } from '../../tensor/index.ts';

/**
 * The teacher's hidden states that predict the response tokens, in the tokens' order. Prompts are shared if the
 * teacher's attention allows it.
 */
export function teacherRows(teacher: Model, rollouts: readonly Rollout[]): Tensor {
  const { batch, tokens } = packResponses(rollouts, teacher.decoder);
  return frozenRows(teacher.decoder, batch, tokens);
}

/** KL(policy‖teacher) over the whole vocabulary at every response token, with gradient for the policy. */
export function compareWithTeacher(
  policy: Model,
  { batch, tokens }: PackedResponses,
  hidden: Tensor,
  teacher: { model: Model; rows: Tensor },
  temperature: number,
): TokenDivergence {
  return tokenDivergence(
    { decoder: policy.decoder, rows: rowsBefore(hidden, batch, tokens) },
    { decoder: teacher.model.decoder, rows: teacher.rows },
    batch.ids.indexSelect(0, integers(tokens, { device: batch.ids.device })),
    { temperature, reverse: true },
  );
}

/** A micro-batch's shares of the comparison's metrics besides the loss. */
export function comparisonMetrics({ divergence, teacherLogp, agrees }: TokenDivergence, totals: StepTotals): Metrics {
  return noGrad(() => ({
    teacher_response_kl: divergence.detach().sum().div(totals.sequences),
    teacher_logprob: teacherLogp.sum().div(totals.tokens),
    teacher_agreement: agrees.sum().div(totals.tokens),
  }));
}

/**
 * Metrics from the log-probs of the sampled tokens: the policy's mean and, if the teacher's are known, its mean and the
 * KL estimate k1 = lpOld − lpTeacher.
 */
export function sampledTeacherMetrics(rollouts: readonly Rollout[]): Record<string, number> {
  if (rollouts.length === 0) return {};
  const own = { student_logprob: meanOf(packedNumbers(rollouts, ({ lpOld }) => lpOld)) };
  if (rollouts[0]?.lpTeacher === undefined) return own;
  const gaps = packedNumbers(rollouts, teacherGap);
  return {
    ...own,
    teacher_logprob: meanOf(packedNumbers(rollouts, ({ lpTeacher }) => lpTeacher)),
    teacher_kl: -meanOf(gaps),
    teacher_response_kl: -gaps.reduce((sum, gap) => sum + gap, 0) / rollouts.length,
  };
}

/** lpTeacher − lpOld of each token. */
export function teacherGap({ lpOld, lpTeacher }: Rollout): Float64Array {
  return Float64Array.from(lpOld, (lp, t) => (lpTeacher?.[t] as number) - lp);
}

/** The same metrics on held-out responses, whichever form the loss has. Micro-batches are dealt over the ranks. */
export async function evaluateAgainstTeacher(
  policy: Model,
  teacher: Model,
  rollouts: readonly Rollout[],
  { temperature, microBatchTokens }: ScoreOptions,
): Promise<Record<string, number>> {
  const measure = (part: readonly Rollout[]) =>
    scope(() =>
      noGrad(() => {
        const rows = teacherRows(teacher, part);
        const packed = packResponses(part, policy.decoder);
        const hidden = policy.decoder.forward(packed.batch);
        const found = compareWithTeacher(policy, packed, hidden, { model: teacher, rows }, temperature);
        const sum = (values: Tensor) => values.to('float64').sum().item();
        return [sum(found.divergence), sum(found.teacherLogp), sum(found.agrees), packed.tokens.length] as const;
      }),
    );
  const parts = byTokens(withTokens(rollouts), microBatchTokens, policy.decoder);
  const cost = (part: readonly Rollout[]) => part.reduce((sum, { ids }) => sum + ids.length, 0);
  const measured = await computeDealt(await joinWorld(), parts, cost, measure);
  const total = (i: 0 | 1 | 2 | 3) => measured.reduce((sum, each) => sum + each[i], 0);
  const tokens = Math.max(1, total(3));
  return {
    teacher_kl: total(0) / tokens,
    teacher_response_kl: total(0) / Math.max(1, rollouts.length),
    teacher_logprob: total(1) / tokens,
    teacher_agreement: total(2) / tokens,
  };
}
