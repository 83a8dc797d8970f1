/**
 * Environments that a policy acts in turn by turn, and that reward it.
 *
 *     import { defineEnvironment } from 'attune/environments';
 *
 *     export default defineEnvironment({ name: 'mine', start: ({ random }) => ({ messages: 'Hello', step: (response) => … }) });
 */
export type { Random } from '../random.ts';
export { type AgentEpisode, AgentThreadLost, OpenAgent } from './agent.ts';
export { type DemonstrationOptions, type DemonstrationRow, demonstrationRows } from './demonstrations.ts';
export { type LoadOptions, loadAgent, loadEnvironment } from './module.ts';
export type { OpenEnvironment, OpenEpisode } from './opened.ts';
export { type Agent, type AgentResult, type AgentRunOptions, defineAgent } from './parts/agent.ts';
export {
  type DemonstrateOptions,
  defineEnvironment,
  type Environment,
  EnvironmentError,
  type EnvironmentFault,
  type Episode,
  type StartOptions,
  type StepOptions,
  type StepResult,
} from './parts/environment.ts';
export type { Step } from './parts/step.ts';
export {
  type EnvironmentPart,
  type EnvironmentRecipe,
  type OpenedEnvironments,
  type OpenedPart,
  openAgents,
  openEnvironments,
  type Problem,
  type ProblemOptions,
} from './recipe.ts';
export { allEnvironments, environment, environmentNames, useAgent, useEnvironment } from './registry.ts';
