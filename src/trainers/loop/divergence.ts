/**
 * Whether a training has diverged while its numbers stayed finite. Losses are then many times what they were at first, or no
 * better than at first with a gradient of exactly 0: weights so large that nothing moves the model any more.
 */
import { AttuneError } from '../../errors.ts';
import type { LoopState } from './state.ts';

/** A healthy loss wanders by tenths, not to ten times what it was. */
const divergedFactor = 10;

/** Counts the steps in a row that look so. */
export function watchLoss(state: LoopState, metrics: Readonly<Record<string, number>>, lr: number): void {
  const { loss, grad_norm: gradNorm } = metrics;
  if (loss === undefined || !Number.isFinite(loss)) return;
  state.firstLoss ??= loss;
  const exploded = loss > divergedFactor * Math.max(Math.abs(state.firstLoss), 0.1);
  const dead = gradNorm === 0 && loss >= state.firstLoss && lr > 0;
  state.diverging = exploded || dead ? (state.diverging ?? 0) + 1 : 0;
}

/** Whether a run that is at its end was diverging, or left out at least half of its updates. */
export const endsDiverged = ({ diverging = 0, skipped, skippedInRow, step }: LoopState): boolean =>
  diverging > 0 || (skippedInRow > 0 && 2 * skipped >= step);

export function divergedError({ firstLoss, skipped, step }: LoopState, lr: number): AttuneError {
  const began = firstLoss === undefined ? '' : ` The loss began at ${firstLoss.toPrecision(3)}.`;
  return new AttuneError(
    `The training has diverged by step ${step}.${began} ${skipped} updates were left out because a number was not finite. ` +
      `Try a lower learning rate (this was ${lr}), a longer warm-up or a smaller --max-grad-norm.`,
  );
}
