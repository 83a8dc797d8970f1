/**
 * Whether a training has diverged. Its numbers may stay finite: losses are then many times the first one, or hardly better
 * than the first with a gradient of exactly 0, because the weights are so large that nothing moves the model any more. (A
 * gradient may well be 0 where a loss has come to its end, far below where it began.)
 */
import { AttuneError } from '../../errors.ts';
import type { LoopState } from './state.ts';

/** A healthy loss wanders by tenths, not to ten times what it was. */
const divergedFactor = 10;

/** Counts the steps in a row that look diverged. */
export function watchLoss(state: LoopState, metrics: Readonly<Record<string, number>>, lr: number): void {
  const { loss, grad_norm: gradNorm } = metrics;
  if (loss === undefined || !Number.isFinite(loss)) return;
  state.firstLoss ??= loss;
  const exploded = loss > divergedFactor * Math.max(Math.abs(state.firstLoss), 0.1);
  const dead = gradNorm === 0 && loss > 0.5 * state.firstLoss && lr > 0;
  state.diverging = exploded || dead ? (state.diverging ?? 0) + 1 : 0;
}

/** Whether a run that is at its end was diverging, or left out at least half of its updates. */
export const endsDiverged = ({ diverging = 0, skipped, skippedInRow, step }: LoopState): boolean =>
  diverging > 0 || (skippedInRow > 0 && 2 * skipped >= step);

export function divergedError({ firstLoss, skipped, step }: LoopState, lr: number): AttuneError {
  const began = firstLoss === undefined ? '' : ` The loss began at ${firstLoss.toPrecision(3)}.`;
  const left = skipped === 0 ? '' : ` ${skipped} updates were left out because a number was not finite.`;
  return new AttuneError(
    `The training has diverged by step ${step}.${began}${left} ` +
      `Try a lower learning rate (this was ${lr}), a longer warm-up or a smaller --max-grad-norm.`,
  );
}

/** The error of a run in which several updates in a row had a loss or a gradient that was not finite. */
export function nonFiniteError(found: { step: number; inRow: number; loss: number; norm: number; lr: number }) {
  const { step, inRow, loss, norm, lr } = found;
  const cause = Number.isFinite(loss)
    ? 'The loss is finite but its gradient is not: a value overflows in the backward pass'
    : `The loss itself is ${loss}: the weights have diverged, or an example gives an impossible number`;
  return new AttuneError(
    `${inRow} updates in a row were left out because a number was not finite (step ${step}: loss ${loss}, grad norm ${norm}, ` +
      `lr ${lr}). ${cause}. Try a lower learning rate, a longer warm-up, a smaller --max-grad-norm, or float32.`,
  );
}
