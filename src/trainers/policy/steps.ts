/** The number of steps of a policy run, from --max-steps or from the number of prompts. */
import type { PromptSource } from '../../rollouts/prompts.ts';

export type PlannedSteps = { maxSteps: number; prompts: number } | { maxSteps?: undefined; prompts: number };

interface StepsConfig {
  maxSteps?: number;
  epochs: number;
  batchSize: number;
  gradAccum: number;
}

/** The number of steps for endless prompts without --max-steps. */
const endlessSteps = 500;

export function plannedSteps({ maxSteps, epochs }: StepsConfig, { size }: Pick<PromptSource, 'size'>): PlannedSteps {
  if (maxSteps !== undefined) return { maxSteps, prompts: 0 };
  if (size === undefined) return { maxSteps: endlessSteps, prompts: 0 };
  return { prompts: Math.max(1, epochs * size) };
}

export function stepsOf(config: StepsConfig, prompts: Pick<PromptSource, 'size'>): number {
  const planned = plannedSteps(config, prompts);
  return planned.maxSteps ?? Math.ceil(planned.prompts / (config.batchSize * config.gradAccum));
}
