/**
 * The reward of a policy run: which scorers a config asks for, and what is done to their scores before advantages are
 * taken — normalisation, then penalties for responses that did not end or ran long.
 */
import { meanOf, overlongPenalty, stdOf, withEosPenalty } from '../algorithms/index.ts';
import { suggestion, UserError } from '../errors.ts';
import { dtypeOf, type QuantType } from '../models/index.ts';
import {
  answerVerifier,
  frozenCopy,
  isRight,
  loadRewardModel,
  loadRewardModule,
  type RewardItem,
  type RewardScorer,
  scoreParts,
  sumOfRewards,
  taskVerifier,
  tolerant,
  type WeightedScorer,
} from '../rewards/index.ts';
import type { Device } from '../tensor/index.ts';
import type { PolicyPrompt } from './prompts.ts';
import { type Rollout, rewardItem } from './rollout.ts';

export interface ShapingOptions {
  normalization: 'none' | 'batch' | 'running';
  eosPenalty: number;
  /** Share of maxNewTokens over which the overlong penalty falls to −1; 0 = none. */
  overlongRamp: number;
  maxNewTokens: number;
}

/** Count, mean and sum of squared differences of all scores so far (Welford 1962). */
interface Moments {
  count: number;
  mean: number;
  squares: number;
}

export class RewardShaper {
  readonly #options: ShapingOptions;
  #moments: Moments = { count: 0, mean: 0, squares: 0 };

  constructor(options: ShapingOptions) {
    this.#options = options;
  }

  /** Sets `reward` from `score`. */
  shape(rollouts: readonly Rollout[]): void {
    const { eosPenalty, overlongRamp, maxNewTokens } = this.#options;
    const scores = this.#normalised(rollouts.map(({ score }) => score));
    for (const [i, rollout] of rollouts.entries()) {
      const ended = withEosPenalty(scores[i] as number, rollout.ended, eosPenalty);
      const length = rollout.completionIds.length;
      const ramp = overlongRamp * maxNewTokens;
      rollout.reward = ended + (ramp > 0 ? overlongPenalty(length, maxNewTokens, ramp) : 0);
    }
  }

  state(): unknown {
    return { ...this.#moments };
  }
  restore(state: unknown): void {
    this.#moments = { ...(state as Moments) };
  }

  #normalised(scores: number[]): number[] {
    const { normalization } = this.#options;
    if (normalization === 'none') return scores;
    if (normalization === 'batch') return toUnit(scores, meanOf(scores), stdOf(scores));
    for (const score of scores) {
      const { count, mean } = this.#moments;
      const next = mean + (score - mean) / (count + 1);
      this.#moments = {
        count: count + 1,
        mean: next,
        squares: this.#moments.squares + (score - mean) * (score - next),
      };
    }
    const { count, mean, squares } = this.#moments;
    return toUnit(scores, mean, count > 1 ? Math.sqrt(squares / (count - 1)) : 0);
  }
}

const toUnit = (scores: number[], mean: number, std: number) => scores.map((score) => (score - mean) / (std + 1e-8));

/** Asks the scorer, and the verifier for what is right, about every rollout. */
export async function scoreRollouts(
  scorer: RewardScorer,
  rollouts: readonly Rollout[],
  signal?: AbortSignal,
): Promise<void> {
  const items = rollouts.map((rollout) => frozenCopy(rewardItem(rollout)));
  const { total, parts } = await scoreParts(scorer, items, { signal });
  for (const [i, rollout] of rollouts.entries()) {
    rollout.score = total[i] as number;
    rollout.parts = Object.fromEntries(Object.entries(parts).map(([name, values]) => [name, values[i] as number]));
    rollout.correct = isRight(items[i] as RewardItem);
  }
}

export interface ScorerOptions {
  device: Device;
  prompts: readonly PolicyPrompt[];
  /** Scorers that a program brings along, besides those of the config. */
  extra?: readonly RewardScorer[];
  onFailure?: (error: Error) => void;
}

/** The options of a reward, named as in configs. */
export interface RewardOptions {
  task?: string;
  rewardModelPath?: string;
  rmQuantType?: QuantType;
  rewardModule?: string;
  /** `name=weight`; 1 each where left out. */
  rewardWeights?: readonly string[];
  /** On unless another reward is named. */
  verifierReward?: boolean;
  formatReward: boolean;
  /** Seconds. */
  rewardTimeout: number;
  onRewardError: 'stop' | 'score';
  /** Of the reward model's weights. */
  dtype: 'auto' | 'float32' | 'bfloat16';
}

/**
 * The weighted sum of all that the config names: reward model, verifier, the user's module. Disposing of it frees what was
 * opened here; what the program brought along remains the program's.
 */
export async function configuredScorer(config: RewardOptions, options: ScorerOptions): Promise<RewardScorer> {
  using opened = new DisposableStack();
  const { extra } = options;
  const scorers = await scorersOf(config, options, opened);
  const weights = weightsOf(config.rewardWeights ?? []);
  const names = scorers.map(({ name }) => name);
  const ofParts = [...weights].filter(([name]) => !names.includes(name));
  // The parts of a user's function are known once it has given some; the sum checks their names then.
  const open = config.rewardModule !== undefined || (extra ?? []).length > 0;
  for (const [name] of ofParts) {
    if (!open && !(name === 'format' && names.includes('verifier')))
      throw new UserError(
        `--reward-weights: there is no reward "${name}".${suggestion(name, names)} There are: ${names.join(', ')}.`,
      );
  }
  const formatShare = names.includes('verifier') ? formatWeight(config, weights) : 0;
  const sum = sumOfRewards(
    scorers.map((scorer): WeightedScorer => ({ scorer, weight: weights.get(scorer.name) ?? 1 })),
    { partWeights: { ...(formatShare === 0 ? {} : { format: formatShare }), ...Object.fromEntries(ofParts) } },
  );
  const own = opened.move();
  return { ...sum, dispose: () => own.dispose() };
}

async function scorersOf(
  config: RewardOptions,
  { device, prompts, extra = [], onFailure }: ScorerOptions,
  opened: DisposableStack,
): Promise<RewardScorer[]> {
  const weights = weightsOf(config.rewardWeights ?? []);
  const scorers: RewardScorer[] = [...extra];
  const other = config.rewardModelPath !== undefined || config.rewardModule !== undefined || extra.length > 0;
  if (config.rewardModelPath !== undefined) {
    const dtype = dtypeOf(config.dtype, device);
    const quantType = config.rmQuantType;
    scorers.push(opened.use(await loadRewardModel(config.rewardModelPath, { device, dtype, quantType })));
  }
  if (config.verifierReward ?? !other) {
    if (config.task !== undefined) scorers.push(taskVerifier({ format: formatWeight(config, weights) }));
    else if (prompts.length > 0 && prompts.every(({ answer }) => answer !== undefined)) scorers.push(answerVerifier());
  }
  if (config.rewardModule !== undefined) {
    const timeLimitMs = 1000 * config.rewardTimeout;
    const module = opened.use(await loadRewardModule(config.rewardModule, { timeLimitMs }));
    scorers.push(config.onRewardError === 'stop' ? module : tolerant(module, { onFailure }));
  }
  if (scorers.length === 0)
    throw new UserError(
      'There is no reward: give --reward-model-path, --reward-module, --task with its verifier, or a dataset with answers.',
    );
  return scorers;
}

function formatWeight(config: RewardOptions, weights: ReadonlyMap<string, number>): number {
  return weights.get('format') ?? (config.formatReward ? 0.2 : 0);
}

/** `verifier=1,format=0.2`. */
function weightsOf(entries: readonly string[]): Map<string, number> {
  return new Map(
    entries.map((entry) => {
      const [name = '', value = ''] = entry.split(/[=:]/);
      const weight = Number(value);
      if (name === '' || value === '' || !Number.isFinite(weight))
        throw new UserError(`--reward-weights: "${entry}" is not name=weight, such as verifier=1.`);
      return [name.trim(), weight];
    }),
  );
}
