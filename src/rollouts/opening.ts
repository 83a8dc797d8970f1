/**
 * Opens the prompts of a config, for training and held out.
 *
 *     const { prompts, evaluation } = await openPrompts(config, tokenizer);
 *     prompts.take(8);
 */
import type { DatasetSpec } from '../data/index.ts';
import { type OpenedEnvironments, openAgents, openEnvironments } from '../environments/index.ts';
import { UserError } from '../errors.ts';
import type { Progress } from '../progress.ts';
import { counted } from '../spelling.ts';
import type { FormatOptions, Tokenizer } from '../text/index.ts';
import { type DatasetPrompts, datasetPrompts, ListPrompts } from './dataset-prompts.ts';
import { EnvironmentPrompts, environmentEvalPrompts } from './environment-prompts.ts';
import { agentPrompt, type PolicyPrompt, type ProblemWriter, type PromptSource, PromptWriter } from './prompts.ts';
import { TaskPrompts, taskEvalPrompts } from './task-prompts.ts';

/** How prompts are rendered as text, named as in configs. */
export interface WritingConfig {
  promptMaxLength: number;
  promptFormat: FormatOptions['format'];
  system?: string;
  templateVariables?: FormatOptions['templateVariables'];
}

/** The options of a run's prompts: tasks, environments or a dataset. */
export interface PromptsConfig extends WritingConfig {
  task?: string;
  env?: string;
  agent?: string;
  /** Time limit in seconds for a step of an environment, and for an agent before its next call. */
  toolTimeout?: number;
  curriculum: boolean;
  curriculumUp: number;
  curriculumDown: number;
  dataset?: string;
  subset?: string;
  trainPrompts?: number;
  testPrompts: number;
  /** Prompts are held out only if the run evaluates. */
  evalSteps: number;
  evalNumPrompts: number;
  seed: number;
}

export interface OpenedPrompts {
  prompts: PromptSource;
  /** The list that the source draws from, if it has one. */
  train: PolicyPrompt[];
  evaluation: PolicyPrompt[];
}

export interface OpenOptions {
  /** In-memory rows instead of the config's dataset. */
  rows?: DatasetSpec;
  /**
   * The config's environments, from `openedEnvironments`. The caller keeps them open while prompts are taken and
   * played.
   */
  environments?: OpenedEnvironments;
  progress?: Progress;
  /** Number of retries of a failed hub request. */
  hubRetries?: number;
}

/** Opens the environments or agents of a config. undefined if it has none. */
export async function openedEnvironments({
  env,
  agent,
  toolTimeout = 60,
}: Pick<PromptsConfig, 'env' | 'agent' | 'toolTimeout'>): Promise<OpenedEnvironments | undefined> {
  const options = { timeLimitMs: 1000 * toolTimeout };
  if (agent !== undefined) return openAgents(agent, options);
  return env === undefined ? undefined : openEnvironments(env, options);
}

export async function openPrompts(
  config: PromptsConfig,
  tokenizer: Tokenizer,
  options: OpenOptions = {},
): Promise<OpenedPrompts> {
  const { task, seed, curriculumUp: up, curriculumDown: down } = config;
  const curriculum = config.curriculum ? { up, down } : undefined;
  if (options.environments !== undefined) {
    const writer = problemWriter(config, tokenizer);
    const drawn = { seed, curriculum, recipe: config.agent ?? config.env };
    return {
      prompts: await EnvironmentPrompts.open(options.environments, writer, drawn),
      train: [],
      evaluation: await heldOutPrompts(config, tokenizer, options),
    };
  }
  if (task !== undefined) {
    return {
      prompts: new TaskPrompts(promptWriter(config, tokenizer), { tasks: task, seed, curriculum }),
      train: [],
      evaluation: await heldOutPrompts(config, tokenizer, options),
    };
  }
  const { train, evaluation, tooLong, alike } = await listsOf(config, tokenizer, options);
  if (train.length === 0)
    throw new UserError(
      `There are no prompts to train on: ${evaluation.length} held out for evaluation (--eval-num-prompts ${config.evalNumPrompts}), ${alike} with the text of one of these, and ${tooLong} longer than --prompt-max-length ${config.promptMaxLength}.`,
    );
  return { prompts: new ListPrompts(train, seed), train, evaluation };
}

/** The held-out prompts only. The dataset may contain no others. */
export async function heldOutPrompts(
  config: PromptsConfig,
  tokenizer: Tokenizer,
  options: OpenOptions = {},
): Promise<PolicyPrompt[]> {
  const { task: tasks, seed } = config;
  const { environments } = options;
  if (tasks === undefined && environments === undefined) {
    const { evaluation, tooLong } = await listsOf(config, tokenizer, options);
    if (evaluation.length > 0 || tooLong === 0) return evaluation;
    throw new UserError(
      `There are no prompts to evaluate on: ${tooLong} are longer than --prompt-max-length ${config.promptMaxLength}.`,
    );
  }
  const count = heldOutCount(config);
  const writer = promptWriter(config, tokenizer);
  let fits = '';
  const onTooLong = () => {
    fits = ` of at most ${counted(writer.maxLength, 'token')} (--prompt-max-length, or the room that --max-new-tokens leaves)`;
  };
  const found =
    environments === undefined
      ? taskEvalPrompts(writer, { tasks: tasks as string, seed, count, onTooLong })
      : await environmentEvalPrompts(environments, problemWriter(config, tokenizer), { seed, count, onTooLong });
  if (found.length < count)
    options.progress
      ?.start('held-out prompts')
      .done(
        `${found.length} in place of ${count}: the ${sourceOf(config)} have no more different test problems at this difficulty${fits}`,
      );
  return found;
}

const sourceOf = ({ env, agent }: PromptsConfig) =>
  agent === undefined ? (env === undefined ? 'tasks' : 'environments') : 'agents';

const heldOutCount = (config: PromptsConfig) => (config.evalSteps > 0 ? config.evalNumPrompts : 0);

/** Agents write their own prompts. */
const problemWriter = (config: PromptsConfig, tokenizer: Tokenizer): ProblemWriter =>
  config.agent === undefined
    ? promptWriter(config, tokenizer)
    : { write: agentPrompt, maxLength: Number.POSITIVE_INFINITY };

export function promptWriter(config: WritingConfig, tokenizer: Tokenizer): PromptWriter {
  return new PromptWriter(tokenizer, {
    format: config.promptFormat,
    maxLength: config.promptMaxLength,
    system: config.system,
    templateVariables: config.templateVariables,
  });
}

function listsOf(
  config: PromptsConfig,
  tokenizer: Tokenizer,
  { rows, progress, hubRetries }: OpenOptions,
): Promise<DatasetPrompts> {
  const { subset, trainPrompts, testPrompts, seed } = config;
  return datasetPrompts(promptWriter(config, tokenizer), {
    dataset: rows ?? (config.dataset as string),
    subset,
    trainPrompts,
    testPrompts,
    seed,
    evalPrompts: heldOutCount(config),
    progress,
    hubRetries,
  });
}
