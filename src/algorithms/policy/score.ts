/** The score-function term −A·lp (Williams 1992), which REINFORCE, RLOO and MaxRL share. */
import type { TermInput, Terms } from './policy.ts';

export function scoreTerm({ lp, advantages }: TermInput): Terms {
  return { policy: lp.mul(advantages).neg() };
}
