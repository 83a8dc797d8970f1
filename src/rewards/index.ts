/** Anything that scores a response: a reward model, a verifier, a program of the user's, sums of them. */

export { agreement, answerVerifier, isRight } from './answer.ts';
export * from './decisions.ts';
export * from './error-analysis.ts';
export * from './module.ts';
export * from './ranking.ts';
export * from './reward-model.ts';
export * from './scorer.ts';
export * from './sum.ts';
export { type ToleranceOptions, tolerant } from './tolerant.ts';
export * from './verifier.ts';
