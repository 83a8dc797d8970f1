/**
 * The functions behind the commands: training, generation, evaluation, export, runs.
 *
 *     import { loadModel, trainPreference } from 'attune';
 *
 * The other entries hold the parts: `attune/tensor` the engine, `attune/algorithms` the losses, and so on.
 */
export { type Dataset, type DatasetSpec, openDataset } from './data/index.ts';
export { AttuneError, UserError } from './errors.ts';
export type { Outcome, Player } from './evaluate/benchmark/asking.ts';
export { type BenchmarkEvaluation, type BenchmarkOptions, evaluateBenchmark } from './evaluate/benchmark/benchmark.ts';
export { describeBenchmark, writeBenchmark } from './evaluate/benchmark/report.ts';
export type { BenchmarkFigures, BenchmarkResults } from './evaluate/benchmark/results.ts';
export { explore } from './evaluate/explore.ts';
export { followed, type Instruction, instructionNames } from './evaluate/instructions/follow.ts';
export {
  type EvaluatePolicyOptions,
  type EvaluationPrompt,
  evaluatePolicy,
  type PolicyEvaluation,
  type PolicySummary,
} from './evaluate/policy.ts';
export { type PolicyEvaluationHeading, writePolicyEvaluation } from './evaluate/policy-report.ts';
export type { LengthControl, PositionControl, RewardSuiteFigures, ScoredItem } from './evaluate/ranked/figures.ts';
export { describeRewardSuite, writeRewardSuite } from './evaluate/ranked/report.ts';
export {
  evaluateRewardSuite,
  knownRankedSuites,
  type RewardSuiteOptions,
  type RewardSuiteResults,
} from './evaluate/ranked/reward-suite.ts';
export type { TiePlace, TiesFigures } from './evaluate/ranked/ties.ts';
export { evaluateReward, type RewardEvaluation, type RewardEvaluationOptions } from './evaluate/reward.ts';
export { writeRewardEvaluation } from './evaluate/reward-report.ts';
export { type Figure, figureOf, mcnemarExact, type PairedTest, pairedTest } from './evaluate/statistics.ts';
export { knownSuites } from './evaluate/suites/known.ts';
export { type Mode, openSuite, type Suite, type SuiteOptions } from './evaluate/suites/open.ts';
export type { AnswerQuestion, ChoiceQuestion, InstructionQuestion, Question } from './evaluate/suites/question.ts';
export {
  exportGguf,
  exportMerged,
  type GenerationRequest,
  type GgufExport,
  type GgufFile,
  type GgufOptions,
  type GgufType,
  generate,
  LanguageModel,
  loadModel,
  type MergedOptions,
  type Model,
  openGguf,
  type QuantType,
  type SampledResponse,
  Sampler,
  stream,
  type TextRequest,
  type TextResponse,
} from './models/index.ts';
export type { Progress } from './progress.ts';
export {
  answerVerifier,
  type LoadRewardOptions,
  loadRewardModel,
  loadRewardModule,
  RewardError,
  type RewardFunction,
  type RewardFunctionOptions,
  type RewardItem,
  RewardModelScorer,
  type RewardModule,
  type RewardOutput,
  type RewardParts,
  type RewardScorer,
  rewardFunction,
  type ScoreRequest,
  score,
  sumOfRewards,
  taskVerifier,
  tolerant,
} from './rewards/index.ts';
export type { JudgeHeading } from './rollouts/scorer.ts';
export { lineChart, openRun, toPng } from './runs/index.ts';
export {
  Registry,
  type RegistryOptions,
  type RequestEntry,
  type RunningServer,
  type ServedModel,
  type ServeOptions,
  serve,
} from './serve/index.ts';
export { Tokenizer } from './text/index.ts';
export type { TrainResult, TrainStep } from './trainers/loop/loop.ts';
export { type Measured, type StepOf, Training, type TrainingResult } from './trainers/loop/training.ts';
export { type TrainerOptions, TrainingRun } from './trainers/loop/training-run.ts';
export { type PolicyConfig, policySchema } from './trainers/policy/config.ts';
export { type PolicyStep, type PolicyTrainerOptions, trainPolicy } from './trainers/policy/policy.ts';
export { type Replay, replayStep } from './trainers/policy/replay.ts';
export { type Signal, signals } from './trainers/policy/signals.ts';
export { type PreferenceConfig, preferenceSchema } from './trainers/preference/config.ts';
export {
  type PreferenceStep,
  type PreferenceTrainerOptions,
  trainPreference,
} from './trainers/preference/preference.ts';
export { type RewardConfig, rewardSchema } from './trainers/reward/config.ts';
export { type RewardInput, type RewardStep, trainReward } from './trainers/reward/reward.ts';
export { type SftConfig, type SftInput, type SftStep, sftSchema, trainSft } from './trainers/sft/sft.ts';
export { type CompareOptions, type CompareOutcome, compareMethods } from './workflows/compare/compare.ts';
export { type CompareConfig, compareSchema } from './workflows/compare/config.ts';
export type { MethodRun } from './workflows/compare/results.ts';
export { type PipelineConfig, pipelineSchema, readPipeline } from './workflows/pipeline/config.ts';
export { type ModelOutcome, type PipelineOptions, trainPipeline } from './workflows/pipeline/pipeline.ts';
export { type ModelPlan, planPipeline } from './workflows/pipeline/plan.ts';
export {
  type BuildPreferencesInput,
  type BuiltPreferences,
  buildPreferences,
} from './workflows/preferences/build.ts';
export type { BuildPreferencesConfig } from './workflows/preferences/config.ts';
export { quantizePolicySchema, quantizeRewardSchema } from './workflows/quantize/config.ts';
export { quantizePolicy } from './workflows/quantize/policy.ts';
export type { QuantizeOptions, QuantizePolicyResults, QuantizeRewardResults } from './workflows/quantize/results.ts';
export { quantizeReward } from './workflows/quantize/reward.ts';
