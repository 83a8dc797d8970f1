/** Anything that scores a response: a reward model, a verifier, a program of the user's, sums of them. */

export { agreement, answerVerifier, isRight } from './answer.ts';
export * from './decisions.ts';
export * from './error-analysis.ts';
export { frozenCopy, RewardError, type RewardFault, type RewardFunction, type RewardOutput } from './program/batch.ts';
export { type RewardFunctionOptions, rewardFunction } from './program/function.ts';
export * from './program/module.ts';
export { type ToleranceOptions, tolerant } from './program/tolerant.ts';
export * from './ranking.ts';
export * from './reward-model.ts';
export * from './reward-notes.ts';
export { type ScoreRequest, score } from './score.ts';
export * from './scorer.ts';
export * from './sum.ts';
export * from './verifier.ts';
