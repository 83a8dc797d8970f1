/** The reward of a config: reward model, verifier and reward module combined into one scorer. */
import { suggestion, UserError } from '../errors.ts';
import { dtypeOf, type Precision, type QuantType } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import {
  answerVerifier,
  loadRewardModel,
  loadRewardModule,
  RewardModelScorer,
  type RewardScorer,
  sumOfRewards,
  taskVerifier,
  tolerant,
  type WeightedScorer,
} from '../rewards/index.ts';
import { rewardModelBytes } from '../rewards/planned-model.ts';
import { rewardModelName } from '../rewards/reward-model.ts';
import type { Device } from '../tensor/index.ts';
import { checkModuleFile } from '../threads/module-thread.ts';
import type { PolicyPrompt } from './prompts.ts';

export interface ScorerOptions {
  device: Device;
  prompts: readonly PolicyPrompt[];
  /** Scorers of the calling program, added to those of the config. */
  extra?: readonly RewardScorer[];
  onFailure?: (error: Error) => void;
  /** Whether the run may do without a reward, because it learns from a teacher. */
  optional?: boolean;
}

/** The options of a reward, named as in configs. */
export interface RewardOptions {
  task?: string;
  /** The environment gives the rewards itself. */
  env?: string;
  /** The agent gives the rewards itself. */
  agent?: string;
  rewardModelPath?: string;
  rmQuantType?: QuantType;
  rmPrecision?: Precision;
  rewardModule?: string;
  /** `name=weight`; the default weight is 1. */
  rewardWeights?: readonly string[];
  /** On by default unless another reward is named. */
  verifierReward?: boolean;
  formatReward: boolean;
  /** Seconds. */
  rewardTimeout: number;
  onRewardError: 'stop' | 'score';
  /** The dtype of the reward model's weights. */
  dtype: 'auto' | 'float32' | 'bfloat16';
}

export interface ConfiguredScorer extends RewardScorer {
  /** The reward model among the rewards. */
  rewardModel?: RewardModelScorer;
  /** There is no reward, and every score is 0. */
  isNone?: boolean;
}

const noScores = (items: readonly unknown[]) => items.map(() => 0);

/** The scorer of a run without rewards. */
const unscored: ConfiguredScorer = {
  name: 'none',
  isNone: true,
  score: async (items) => noScores(items),
  parts: async (items) => ({ total: noScores(items), parts: {} }),
};

/**
 * The weighted sum of all rewards in the config: reward model, verifier, reward module. `dispose` frees what was opened
 * here, but not the calling program's scorers.
 */
export async function configuredScorer(config: RewardOptions, options: ScorerOptions): Promise<ConfiguredScorer> {
  if ((config.env ?? config.agent) !== undefined) return episodeReward(config.agent !== undefined, options.extra);
  using opened = new DisposableStack();
  const { extra } = options;
  const scorers = await scorersOf(config, options, opened);
  const weights = weightsOf(config.rewardWeights ?? []);
  const names = scorers.map(({ name }) => name);
  if (scorers.length === 0) {
    checkWeighted(weights, names);
    return unscored;
  }
  // The reward parts of a user's function are known only after its first call, when the sum checks their names.
  if (config.rewardModule === undefined && (extra ?? []).length === 0) checkWeighted(weights, names);
  const ofParts = [...weights].filter(([name]) => !names.includes(name));
  const formatShare = names.includes('verifier') ? formatWeight(config, weights) : 0;
  const sum = sumOfRewards(
    scorers.map((scorer): WeightedScorer => ({ scorer, weight: weights.get(scorer.name) ?? 1 })),
    { partWeights: { ...(formatShare === 0 ? {} : { format: formatShare }), ...Object.fromEntries(ofParts) } },
  );
  const own = opened.move();
  const rewardModel = scorers.find((scorer) => scorer instanceof RewardModelScorer);
  return { ...sum, ...(rewardModel && { rewardModel }), dispose: () => own.dispose() };
}

/** Episodes come with their scores, so no scorer runs. */
function episodeReward(isAgent: boolean, extra: readonly RewardScorer[] = []): ConfiguredScorer {
  const [name, flag, where] = isAgent
    ? ['agent', '--agent', "agent's run"]
    : ['environment', '--env', "environment's step"];
  if (extra.length > 0)
    throw new UserError(
      `The ${name} gives the reward (${flag}): leave ${extra.map((each) => each.name).join(', ')} out, or give it in the ${where}.`,
    );
  return { name, score: () => Promise.reject(new UserError(`Only the episodes of an ${name} have its reward.`)) };
}

/** The scorer, as recorded in an evaluation's files. */
export interface JudgeHeading {
  reward_model?: string;
  /** The quantisation of the reward model's weights; null for none. */
  rm_quant_type?: QuantType | null;
  /** The precision it scored in: `fast` if that was requested and available. */
  rm_precision?: Precision;
  reward_module?: string;
}

export function judgeHeading(
  { rewardModelPath, rewardModule }: Pick<RewardOptions, 'rewardModelPath' | 'rewardModule'>,
  { rewardModel }: ConfiguredScorer,
): JudgeHeading {
  const model = rewardModel && {
    reward_model: rewardModelPath,
    rm_quant_type: rewardModel.model.decoder.quantType,
    rm_precision: rewardModel.precision,
  };
  return { ...model, ...(rewardModule !== undefined && { reward_module: rewardModule }) };
}

async function scorersOf(
  config: RewardOptions,
  { device, prompts, extra = [], onFailure, optional }: ScorerOptions,
  opened: DisposableStack,
): Promise<RewardScorer[]> {
  const scorers: RewardScorer[] = [...extra];
  const other = config.rewardModelPath !== undefined || config.rewardModule !== undefined || extra.length > 0;
  if (config.rewardModelPath !== undefined) {
    const dtype = dtypeOf(config.dtype, device);
    const { rmQuantType: quantType, rmPrecision: precision } = config;
    scorers.push(opened.use(await loadRewardModel(config.rewardModelPath, { device, dtype, quantType, precision })));
  }
  const verifier = verifierOf(config, prompts, other);
  if (verifier !== undefined) scorers.push(verifier);
  checkFormatReward(config, scorers);
  if (config.rewardModule !== undefined) {
    const timeLimitMs = 1000 * config.rewardTimeout;
    const module = opened.use(await loadRewardModule(config.rewardModule, { timeLimitMs }));
    scorers.push(config.onRewardError === 'stop' ? module : tolerant(module, { onFailure }));
  }
  if (scorers.length === 0 && !optional) throw noReward();
  return scorers;
}

/**
 * Finds reward errors that would stop a run, without loading a model or running a module. Returns the bytes of the
 * reward model, 0 without one.
 */
export async function checkReward(
  config: RewardOptions,
  { device, prompts, progress, optional }: Omit<ScorerOptions, 'extra' | 'onFailure'> & { progress?: Progress },
): Promise<number> {
  if ((config.env ?? config.agent) !== undefined) return 0;
  const { rewardModelPath, rewardModule, rmQuantType: quantType } = config;
  const other = rewardModelPath !== undefined || rewardModule !== undefined;
  const verifier = verifierOf(config, prompts, other);
  checkFormatReward(config, verifier === undefined ? [] : [verifier]);
  if (rewardModule !== undefined) checkModuleFile(rewardModule, 'reward module');
  if (!other && verifier === undefined && !optional) throw noReward();
  const weights = weightsOf(config.rewardWeights ?? []);
  const names = [...(rewardModelPath === undefined ? [] : [rewardModelName]), ...(verifier ? [verifier.name] : [])];
  if (rewardModule === undefined) checkWeighted(weights, names);
  if (rewardModelPath === undefined) return 0;
  return rewardModelBytes(rewardModelPath, { device, dtype: dtypeOf(config.dtype, device), quantType, progress });
}

/** Refuses weights for rewards that do not exist. */
function checkWeighted(weights: ReadonlyMap<string, number>, names: readonly string[]): void {
  for (const name of weights.keys()) {
    if (names.includes(name) || (name === 'format' && names.includes('verifier'))) continue;
    throw new UserError(
      `--reward-weights: there is no reward "${name}".${suggestion(name, names)} ${names.length === 0 ? 'This run has none: leave the option out, or name a reward (--reward-model-path, --reward-module)' : `There are: ${names.join(', ')}`}.`,
    );
  }
}

const noReward = () =>
  new UserError(
    'There is no reward: give --reward-model-path, --reward-module, --task with its verifier, or a dataset with answers.',
  );

/** The verifier of the task's or dataset's answers; undefined if it is off. `other`: another reward is named. */
function verifierOf(config: RewardOptions, prompts: readonly PolicyPrompt[], other: boolean): RewardScorer | undefined {
  const { verifierReward } = config;
  const verifier = (verifierReward ?? !other) ? knownAnswers(config, prompts) : undefined;
  if (verifierReward === true && verifier === undefined) throw noAnswers(prompts);
  return verifier;
}

function checkFormatReward(config: RewardOptions, scorers: readonly RewardScorer[]): void {
  if (config.formatReward && !scorers.some(({ name }) => name === 'verifier'))
    throw new UserError(
      '--format-reward is a part of the verifier of --task, which is off where another reward is named: add --verifier-reward.',
    );
}

function knownAnswers(config: RewardOptions, prompts: readonly PolicyPrompt[]): RewardScorer | undefined {
  const weights = weightsOf(config.rewardWeights ?? []);
  if (config.task !== undefined) return taskVerifier({ format: formatWeight(config, weights) });
  const isAnswered = prompts.length > 0 && prompts.every(({ answer }) => answer !== undefined);
  return isAnswered ? answerVerifier() : undefined;
}

function noAnswers(prompts: readonly PolicyPrompt[]): UserError {
  const without = prompts.filter(({ answer }) => answer === undefined).length;
  return new UserError(
    `--verifier-reward: ${without} of the ${prompts.length} prompts have no known answer that a response could be held against.`,
  );
}

function formatWeight(config: RewardOptions, weights: ReadonlyMap<string, number>): number {
  return weights.get('format') ?? (config.formatReward ? 0.2 : 0);
}

/** Parses `verifier=1,format=0.2`. */
function weightsOf(entries: readonly string[]): Map<string, number> {
  const weights = new Map<string, number>();
  for (const entry of entries) {
    const [, name, value = ''] = /^\s*([^=:]*[^=:\s])\s*[=:]\s*(\S+)\s*$/.exec(entry) ?? [];
    const weight = Number(value);
    if (name === undefined || !Number.isFinite(weight))
      throw new UserError(`--reward-weights: "${entry}" is not name=weight, such as verifier=1.`);
    if (weights.has(name)) throw new UserError(`--reward-weights: ${name} has two weights; give it one.`);
    weights.set(name, weight);
  }
  return weights;
}
