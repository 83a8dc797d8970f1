/**
 * Detects a diverged training, whose numbers may all be finite. Either the loss is many times the first one, or it is
 * still near the first one with a gradient of exactly 0: the weights are then so large that updates no longer change
 * the model. A gradient of 0 is normal at the end, when the loss is far below its start.
 */
import { AttuneError } from '../../errors.ts';
import { counted } from '../../spelling.ts';
import type { LoopState } from './state.ts';

/** A healthy loss fluctuates by tenths, not by a factor of ten. */
const divergedFactor = 10;

/** Counts consecutive steps that look diverged. */
export function watchLoss(state: LoopState, metrics: Readonly<Record<string, number>>, lr: number): void {
  const { loss, grad_norm: gradNorm } = metrics;
  if (loss === undefined || !Number.isFinite(loss)) return;
  state.firstLoss ??= loss;
  const exploded = loss > divergedFactor * Math.max(Math.abs(state.firstLoss), 0.1);
  const dead = gradNorm === 0 && loss > 0.5 * state.firstLoss && lr > 0;
  state.diverging = exploded || dead ? (state.diverging ?? 0) + 1 : 0;
}

/** Whether a finished run was diverging, or skipped at least half of its updates. */
export const endsDiverged = ({ diverging = 0, skipped, skippedInRow, step }: LoopState): boolean =>
  diverging > 0 || (skippedInRow > 0 && 2 * skipped >= step);

export function divergedError({ firstLoss, skipped, step }: LoopState, lr: number): AttuneError {
  const began = firstLoss === undefined ? '' : ` The loss began at ${firstLoss.toPrecision(3)}.`;
  const left = skipped === 0 ? '' : ` ${counted(skipped, 'update')} skipped: a number was not finite.`;
  return new AttuneError(
    `The training has diverged by step ${step}.${began}${left} ` +
      `Try a lower learning rate (this was ${lr}), a longer warm-up or a smaller --max-grad-norm.`,
  );
}

/** The error of a run with several consecutive updates whose loss or gradient was not finite. */
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
