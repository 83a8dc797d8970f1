/** The score-function term −A·lp (Williams 1992) of REINFORCE, RLOO and MaxRL. */
import type { TermInput, Terms } from './policy.ts';

export function scoreTerm({ lp, advantages }: TermInput): Terms {
  return { policy: lp.mul(advantages).neg() };
}
