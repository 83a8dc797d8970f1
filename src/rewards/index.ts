/** Scorers of responses: reward models, verifiers, functions and modules of your own, and sums of them. */

export { answerVerifier, isRight } from './answer.ts';
export { type Decision, type Decisions, decisionsOf, type Forecast } from './decisions.ts';
export {
  type Calibration,
  calibration,
  type ErrorAnalysis,
  errorAnalysis,
  type Rate,
  type Spread,
} from './error-analysis.ts';
export { RewardError, type RewardFault, type RewardFunction, type RewardOutput } from './program/batch.ts';
export { type RewardFunctionOptions, rewardFunction } from './program/function.ts';
export { loadRewardModule, type RewardModule } from './program/module.ts';
export { type ToleranceOptions, tolerant } from './program/tolerant.ts';
export * from './ranking.ts';
export {
  aggregateSteps,
  type LoadRewardOptions,
  loadRewardModel,
  type ModelScoreOptions,
  type RewardModelOptions,
  RewardModelScorer,
  type StepAggregation,
  stepAggregations,
} from './reward-model.ts';
export { type RewardNotes, type RewardType, rewardTypes } from './reward-notes.ts';
export { type ScoreRequest, score } from './score.ts';
export { type RewardItem, type RewardParts, type RewardScorer, type ScoreOptions, scoreParts } from './scorer.ts';
export * from './sum.ts';
export { taskVerifier, type VerifierOptions } from './verifier.ts';
