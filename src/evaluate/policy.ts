/**
 * Evaluates a policy on held-out prompts: rewards, accuracy, pass@k, KL to a reference, win rate against another
 * policy, lengths, and responses side by side.
 *
 *     const result = await evaluatePolicy({ model, tokenizer, prompts, scorer, opponent: { model: base, tokenizer } });
 *     result.summary.accuracy, result.summary.win_rate
 */
import { meanOf, meanPassAtK } from '../algorithms/index.ts';
import { above, anything, atLeast, checkArguments, integer, list, type Rule, whole } from '../arguments.ts';
import { OpenAgent, type Problem } from '../environments/index.ts';
import { UserError } from '../errors.ts';
import { type CacheDtype, type Model, Sampler } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import type { RewardScorer } from '../rewards/index.ts';
import { anyScorer } from '../rewards/scorer.ts';
import { AgentPlayer } from '../rollouts/agents/player.ts';
import type { RolloutPlayer } from '../rollouts/drawing.ts';
import { EpisodePlayer } from '../rollouts/episodes/player.ts';
import { evaluatePrompts, measureKl } from '../rollouts/evaluation.ts';
import { agentPrompt, type PolicyPrompt, PromptWriter } from '../rollouts/prompts.ts';
import type { Rollout } from '../rollouts/rollout.ts';
import type { Example } from '../tasks/index.ts';
import type { FormatOptions, Message, Tokenizer } from '../text/index.ts';
import { type Summary, summarise } from './summary.ts';

/** A prompt to evaluate on, with its problem if it has one. */
export interface EvaluationPrompt {
  messages: readonly Message[];
  example?: Example;
  answer?: string;
  /** The environment problem that it starts. An episode is played, and the environment gives the reward. */
  problem?: Problem;
}

export interface Player {
  model: Model;
  tokenizer: Tokenizer;
}

/** The policy, prompts and scorer of `evaluatePolicy`, and the models to compare with. */
export interface EvaluatePolicyOptions extends Player, FormatOptions {
  prompts: readonly EvaluationPrompt[];
  scorer: RewardScorer;
  /** The model to which the KL is measured. It must have the same tokenizer. */
  reference?: Model;
  /** Another policy, compared on the same prompts. */
  opponent?: Player;
  /** Number of sampled responses per prompt, besides the greedy one. */
  samples?: number;
  /** Token limit of a response, or of a whole episode including observations. */
  maxNewTokens?: number;
  /** The most answers in an episode; default 10. */
  maxTurns?: number;
  /** Seconds that an agent may take before its next call; default 60. */
  toolTimeout?: number;
  /** The most tokens of the first messages of an agent's conversation. Default: what fits in the model's context. */
  promptMaxLength?: number;
  temperature?: number;
  topP?: number;
  seed?: number;
  /** As in `SamplerOptions`. */
  cacheDtype?: CacheDtype;
  progress?: Progress;
  signal?: AbortSignal;
}

/** A response of the policy, with its scores. */
export interface EvaluatedResponse {
  text: string;
  reward: number;
  parts: Record<string, number>;
  correct?: boolean;
  lengthTokens: number;
  ended: boolean;
  /** Too long for the reward model, which scored only the last tokens. */
  truncated?: boolean;
}

/** The summary of an evaluation, and every prompt with its responses. */
export interface PolicyEvaluation {
  summary: PolicySummary;
  prompts: { prompt: string; greedy: EvaluatedResponse; sampled: EvaluatedResponse[]; opponent?: EvaluatedResponse }[];
}

/** The summary numbers of a policy's evaluation. */
export interface PolicySummary {
  prompts: number;
  reward: Summary;
  reward_parts: Record<string, number>;
  sampled_reward?: Summary;
  accuracy?: number;
  pass_at_k?: Record<string, number>;
  length_tokens: Summary;
  ended: number;
  /** Responses too long for the reward model: greedy and sampled, including the opponent's. */
  truncated: number;
  /**
   * Over sampled responses, or greedy ones without samples: Σ_t log π − log πref per response, and its mean per token.
   */
  kl?: { per_response: number; per_token: number };
  /** Greedy responses against the opponent's. A tie counts half. */
  win_rate?: { rate: number; wins: number; ties: number; losses: number; low: number; high: number };
}

const anyModel: Rule = {
  fits: (value) => (value as Model | null)?.decoder !== undefined,
  wanted: 'a model, as loadModel gives it',
};
const rules: Partial<Record<keyof EvaluatePolicyOptions, Rule>> = {
  model: anyModel,
  tokenizer: {
    fits: (value) => typeof (value as Tokenizer | null)?.encode === 'function',
    wanted: 'a tokenizer, as loadTokenizer gives it',
  },
  prompts: list(anything),
  scorer: anyScorer,
  reference: anyModel,
  opponent: {
    fits: (value) => value !== null && anyModel.fits((value as Player).model),
    wanted: 'a model with its tokenizer',
  },
  samples: whole(0),
  maxNewTokens: whole(1),
  maxTurns: whole(1),
  toolTimeout: above(0),
  promptMaxLength: whole(1),
  temperature: above(0),
  topP: above(0, 1),
  seed: integer,
};

/** Greedy responses do not depend on the temperature, so 0 is allowed unless a KL is measured at it. */
const rulesFor = (options: Partial<EvaluatePolicyOptions> | undefined) =>
  options?.samples === 0 && options.reference === undefined ? { ...rules, temperature: atLeast(0) } : rules;

/** Evaluates a policy on held-out prompts. */
export async function evaluatePolicy(options: EvaluatePolicyOptions): Promise<PolicyEvaluation> {
  checkArguments('evaluatePolicy', options, rulesFor(options), ['model', 'tokenizer', 'prompts', 'scorer']);
  for (const prompt of options.prompts) checkArguments('A prompt', prompt, { messages: list(anything) }, ['messages']);
  const { model, prompts, samples = 8, temperature = 1, opponent, reference } = options;
  if (prompts.length === 0) throw new UserError('There are no prompts to evaluate on.');
  const { greedy, sampled } = await responsesOf(options, options, samples);
  const others = opponent && (await responsesOf(opponent, options, 0)).greedy.map(evaluated);
  const own = greedy.map(evaluated);
  const groups = prompts.map((_, i) => sampled.filter(({ group }) => group === i).map(evaluated));
  const scoring = { temperature, microBatchTokens: 16384 };
  const kl = reference && (await measureKl(model, reference, samples === 0 ? greedy : sampled, scoring));
  const summary: PolicySummary = {
    prompts: prompts.length,
    reward: summarise(own.map(({ reward }) => reward)),
    reward_parts: partMeans(own),
    ...(samples === 0 ? {} : { sampled_reward: summarise(sampled.map(({ score }) => score)) }),
    ...correctness(own, groups),
    length_tokens: summarise(own.map(({ lengthTokens }) => lengthTokens)),
    ended: meanOf(own.map(({ ended }) => Number(ended))),
    truncated: [...own, ...groups.flat(), ...(others ?? [])].filter((response) => response.truncated).length,
    ...(kl && { kl: { per_response: kl.perResponse, per_token: kl.perToken } }),
    ...(others && { win_rate: winRate(own, others) }),
  };
  return {
    summary,
    prompts: prompts.map(({ messages }, i) => ({
      prompt: messages.map(({ content }) => content).join('\n\n'),
      greedy: own[i] as EvaluatedResponse,
      sampled: groups[i] as EvaluatedResponse[],
      ...(others && { opponent: others[i] as EvaluatedResponse }),
    })),
  };
}

/** One player's greedy and sampled responses to all prompts, scored. */
async function responsesOf({ model, tokenizer }: Player, options: EvaluatePolicyOptions, samples: number) {
  const { maxNewTokens = 512, temperature = 1, topP = 1, seed = 1, cacheDtype = 'model', signal, progress } = options;
  const writer = new PromptWriter(tokenizer, options);
  const prompts = options.prompts.map(({ messages, example, answer: known, problem }, i) => ({
    ...(isOfAgent(problem) ? agentPrompt(i, messages) : (writer.write(i, messages) as PolicyPrompt)),
    ...(example && { example }),
    ...(known !== undefined && { answer: known }),
    ...(problem && { problem }),
  }));
  const longest = Math.max(...prompts.map(({ ids }) => ids.length));
  const room = model.decoder.spec.maxPositions - longest;
  if (room < 1)
    throw new UserError(
      `A prompt has ${longest} tokens, and ${model.decoder.spec.maxPositions} is all that the model has positions for: leave out long prompts with --prompt-max-length.`,
    );
  const { maxPositions } = model.decoder.spec;
  if (longest === 0 && maxNewTokens >= maxPositions)
    throw new UserError(
      `--max-new-tokens ${maxNewTokens}: there are ${maxPositions} positions for the messages and the answers of a conversation together in the model.`,
    );
  const player = playerOf(tokenizer, options, maxPositions - maxNewTokens);
  using sampler = new Sampler(model, { tokenizer, cacheDtype, reusePrefixes: player !== undefined });
  const seeds = (place: number) => seed + place;
  const written = { maxNewTokens: Math.min(maxNewTokens, room), temperature, topP, seeds, signal, progress };
  const draw = { ...written, samples, player };
  return await evaluatePrompts(sampler, tokenizer, options.scorer, prompts, draw);
}

/** Plays the episodes of environment problems; undefined if there are none. */
function playerOf(tokenizer: Tokenizer, options: EvaluatePolicyOptions, room: number): RolloutPlayer | undefined {
  const { prompts, maxTurns = 10, toolTimeout = 60, promptMaxLength = room, format, templateVariables } = options;
  const rules = { maxTurns, onError: 'stop' as const, format, templateVariables };
  const problems = prompts.filter(({ problem }) => problem !== undefined).length;
  if (problems === 0) return undefined;
  const agents = prompts.filter(({ problem }) => isOfAgent(problem)).length;
  if (problems !== prompts.length || (agents > 0 && agents < problems))
    throw new UserError(
      'Problems of environments, and those of agents, are evaluated by themselves: leave the others out.',
    );
  if (agents === 0) return new EpisodePlayer(tokenizer, rules);
  const maxPromptTokens = Math.min(promptMaxLength, room);
  return new AgentPlayer(tokenizer, { ...rules, maxPromptTokens, timeLimitMs: 1000 * toolTimeout });
}

const isOfAgent = (problem: Problem | undefined) => problem?.environment instanceof OpenAgent;

const evaluated = ({ response, score, parts, correct, responseIds, ended, truncated }: Rollout): EvaluatedResponse => ({
  text: response,
  reward: score,
  parts,
  correct,
  lengthTokens: responseIds.length,
  ended,
  ...(truncated && { truncated }),
});

function correctness(
  greedy: readonly EvaluatedResponse[],
  sampled: readonly (readonly EvaluatedResponse[])[],
): Partial<PolicySummary> {
  if (greedy.some(({ correct }) => correct === undefined)) return {};
  const accuracy = meanOf(greedy.map(({ correct }) => Number(correct)));
  const most = Math.min(...sampled.map(({ length }) => length));
  if (most === 0) return { accuracy };
  const right = sampled.map((group) => group.map(({ correct }) => correct === true));
  const passes: Record<string, number> = {};
  for (let k = 1; k <= most; k *= 2) passes[k] = meanPassAtK(right, k);
  return { accuracy, pass_at_k: passes };
}

function partMeans(own: readonly EvaluatedResponse[]): Record<string, number> {
  const names = [...new Set(own.flatMap(({ parts }) => Object.keys(parts)))];
  return Object.fromEntries(names.map((name) => [name, meanOf(own.map(({ parts }) => parts[name] ?? 0))]));
}

/** A win rate with its 95 % Wilson score interval. */
export function winRate(
  own: readonly Pick<EvaluatedResponse, 'reward'>[],
  others: readonly Pick<EvaluatedResponse, 'reward'>[],
): NonNullable<PolicySummary['win_rate']> {
  const signs = own.map(({ reward }, i) => Math.sign(reward - (others[i]?.reward ?? 0)));
  const wins = signs.filter((sign) => sign > 0).length;
  const losses = signs.filter((sign) => sign < 0).length;
  const ties = signs.length - wins - losses;
  const n = signs.length;
  const rate = (wins + ties / 2) / n;
  const z = 1.96;
  const centre = (rate + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z * Math.sqrt((rate * (1 - rate)) / n + (z * z) / (4 * n * n))) / (1 + (z * z) / n);
  return { rate, wins, ties, losses, low: centre - half, high: centre + half };
}
