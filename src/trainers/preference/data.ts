/** The tokenised data of a preference training, and its plan. */
import type { PreferenceLoss } from '../../algorithms/index.ts';
import { loadTokenizer } from '../../models/index.ts';
import { type TrainingPlan, type TrainingPlanOptions, trainingPlan } from '../batches/plan.ts';
import { type TokenSets, tokenSets } from '../batches/token-sets.ts';
import type { TrainerOptions } from '../loop/training-run.ts';
import { withinPositions } from '../model-plan.ts';
import { checkMoving, checkQuantised } from '../reference/options.ts';
import { openForTraining, sourceOf } from '../setup.ts';
import type { PreferenceConfig } from './config.ts';

/** The tokens of training and held-out data in the shape that the loss takes: pairs, or single labelled responses. */
export async function openPreferences(
  asked: PreferenceConfig,
  algorithm: PreferenceLoss,
  options: TrainerOptions,
): Promise<TokenSets> {
  const { progress, signal, cache } = options;
  sourceOf(asked, options);
  const config = await withinPositions(asked, progress);
  const tokenizer = await loadTokenizer(config, progress);
  const parts = await openForTraining(config, {
    given: options,
    progress,
    shape: algorithm.paired ? 'preference' : 'unpaired',
    dropTies: algorithm.paired,
  });
  return tokenSets(parts, tokenizer, {
    maxLength: config.maxLength,
    maxPromptLength: config.maxPromptLength,
    maxResponseLength: config.maxCompletionLength,
    format: config.promptFormat,
    cache,
    progress,
    signal,
  });
}

export const noDropout = 'the model has no dropout of its own';

export async function preferencePlan(
  config: PreferenceConfig,
  algorithm: PreferenceLoss,
  data: TokenSets,
  options: Pick<TrainingPlanOptions, 'progress' | 'ranks' | 'refuse' | 'resume'> = {},
): Promise<TrainingPlan> {
  const copied = typeof config.refModel === 'string' || !config.lora;
  const secondCopy = algorithm.needsReference && copied && !config.precomputeRef;
  const referenceQuantType = config.refQuantType;
  const referenceModel = algorithm.needsReference && config.refModel ? config.refModel : undefined;
  const plan = await trainingPlan(config, data, config, { ...options, secondCopy, referenceQuantType, referenceModel });
  if (!plan.dropout) options.refuse?.(['dropout'], noDropout);
  checkQuantised(config, plan.adapters);
  if (algorithm.needsReference) checkMoving(config, plan.adapters);
  return plan;
}
