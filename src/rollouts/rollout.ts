/**
 * A rollout is a response of the policy with its numbers. Between sampling and the losses it is in host memory, on
 * every kind of device.
 *
 *     const seeds = rolloutSeeds(config.seed, step);
 *     const rollouts = await sampleRollouts(sampler, tokenizer, prompts.take(8), { groupSize: 4, maxNewTokens: 64, temperature: 1, seeds });
 */
import type { PromptedResponse } from '../models/decoder/responses.ts';
import type { GenerationRequest, SampledResponse, Sampler } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { Random } from '../random.ts';
import type { RewardItem } from '../rewards/index.ts';
import type { Message, Tokenizer } from '../text/index.ts';
import type { PolicyPrompt } from './prompts.ts';

/** The part of the sampler that rollouts use. Tests replace it. */
export type RolloutSampler = Pick<Sampler, 'generate' | 'dispose'> & Partial<Pick<Sampler, 'reserve'>>;

export interface Rollout extends PromptedResponse {
  prompt: PolicyPrompt;
  /** The number of its prompt in the step. `rolloutIndex` counts the responses in its group. */
  group: number;
  rolloutIndex: number;
  /** The response's ids including the token that ended it. For an episode, those of all its responses. */
  responseIds: Int32Array;
  /** The response's text. For an episode, its transcript. */
  response: string;
  /**
   * The turns of an episode; `spans` marks the policy's own ids. An agent's rollout has no prompt of its own: its
   * conversations lie end to end in `ids`, and `starts` says where each begins.
   */
  episode?: EpisodeRecord;
  /** Ended by itself instead of being cut off at maxNewTokens. */
  ended: boolean;
  /** Log-probs of the response's tokens over the whole vocabulary, under the weights that sampled them. */
  lpOld: Float32Array;
  /** The probability mass that top-k, top-p or min-p cut off at each token; undefined without truncation. */
  cutMass?: Float32Array;
  /** Log-probs recomputed by the trainer, if requested. */
  lpTrainer?: Float32Array;
  lpRef?: Float32Array;
  lpTeacher?: Float32Array;
  /** V of each token under the weights that sampled. */
  values?: Float32Array;
  /** The reward that is maximised: the score after normalisation and penalties. */
  reward: number;
  /** The parts of the reward by name before weighting, and their weighted sum. */
  parts: Record<string, number>;
  score: number;
  /** Too long for the reward model, which scored only the last tokens. */
  truncated?: boolean;
  /** Whether the verifier accepts it; undefined without a verifier. */
  correct?: boolean;
  /** A_t of each token, and one number for the response, which is stored. */
  advantages: Float64Array;
  advantage: number;
  returns?: Float64Array;
}

/** An answer of the policy, and the environment's reply. */
export interface EpisodeTurn {
  /** For an agent's call: the messages that are new in its conversation. */
  asked?: readonly Message[];
  /** For an agent: the number of the turn's conversation, from 1. */
  conversation?: number;
  response: string;
  /** Number of tokens in the response. */
  tokens: number;
  /** The environment's reply. Present after the last turn too, although the policy no longer reads it. */
  told: readonly Message[];
  reward: number;
}

/**
 * Why an episode ended. `done`: the environment or agent ended it. `turns`: --max-turns. `length`: --max-new-tokens.
 * `error`: the environment failed, and --on-reward-error score continues. An agent's episode ends with `turns` or
 * `length` if one of its calls was refused.
 */
export type EpisodeEnd = 'done' | 'turns' | 'length' | 'error';

export interface EpisodeRecord {
  environment: string;
  difficulty: number;
  turns: EpisodeTurn[];
  end: EpisodeEnd;
  /** As the environment reported; undefined if it never did. */
  success?: boolean;
  /** Whether its episodes can succeed or fail. Unknown for some environments. */
  judged?: boolean;
}

/** The messages of an episode after its prompt, in order, with the policy's turns marked. */
export function saidIn({
  turns,
}: Pick<EpisodeRecord, 'turns'>): { role: string; content: string; turn?: EpisodeTurn }[] {
  let before = 1;
  return turns.flatMap((turn) => {
    const { response, asked = [], told, conversation = before } = turn;
    // Marks the turns at which the transcript switches to another conversation.
    const other = conversation === before ? [] : [{ role: 'conversation', content: String(conversation) }];
    before = conversation;
    const plain = ({ role, content }: Message) => ({ role, content });
    return [...other, ...asked.map(plain), { role: 'assistant', content: response, turn }, ...told.map(plain)];
  });
}

/** The messages of an episode as one text. */
export function transcriptOf(episode: Pick<EpisodeRecord, 'turns'>): string {
  const said = saidIn(episode);
  return said.length === 1
    ? (said[0]?.content ?? '')
    : said.map(({ role, content }) => `${role}: ${content}`).join('\n');
}

export interface RolloutOptions {
  groupSize: number;
  maxNewTokens: number;
  temperature: number;
  topP?: number;
  topK?: number;
  minP?: number;
  /** The seed of each prompt by its place in the list. Samples depend on it alone. */
  seeds: (place: number) => number;
  signal?: AbortSignal;
  progress?: Progress;
}

/** Seeds from the run's seed and the purpose of the rollouts: a step, a round, an evaluation. */
export const rolloutSeeds =
  (seed: number, ...key: readonly (string | number)[]) =>
  (place: number) =>
    new Random('rollout', seed, ...key, place).uint32();

/** Samples `groupSize` responses to every prompt, group after group. */
export async function sampleRollouts(
  sampler: RolloutSampler,
  tokenizer: Tokenizer,
  prompts: readonly PolicyPrompt[],
  options: RolloutOptions,
): Promise<Rollout[]> {
  const rollouts = await sampleIds(sampler, tokenizer, prompts, options);
  decodeResponses(rollouts, tokenizer);
  return rollouts;
}

/** `sampleRollouts` without decoding the texts. */
export async function sampleIds(
  sampler: RolloutSampler,
  tokenizer: Pick<Tokenizer, 'eosIds'>,
  prompts: readonly PolicyPrompt[],
  options: RolloutOptions,
): Promise<Rollout[]> {
  const { groupSize, maxNewTokens, seeds, signal, progress } = options;
  const rule = samplingRule(options, tokenizer);
  const requests = prompts.map(
    ({ ids }, i): GenerationRequest => ({
      ...rule,
      prompt: ids,
      samples: groupSize,
      maxNewTokens,
      seed: seeds(i),
    }),
  );
  const groups = await sampler.generate(requests, { signal, progress });
  signal?.throwIfAborted();
  return groups.flatMap((group, i) => group.map((sampled, k) => rolloutOf(prompts[i] as PolicyPrompt, sampled, i, k)));
}

/** The sampling settings, and the tokens that end a response. */
export function samplingRule(
  { temperature, topP, topK, minP }: Pick<RolloutOptions, 'temperature' | 'topP' | 'topK' | 'minP'>,
  { eosIds }: Pick<Tokenizer, 'eosIds'>,
): Omit<GenerationRequest, 'prompt' | 'maxNewTokens'> {
  return {
    temperature,
    ...(topP !== undefined && topP < 1 ? { topP } : {}),
    ...(topK !== undefined && topK > 0 ? { topK } : {}),
    ...(minP !== undefined && minP > 0 ? { minP } : {}),
    stopIds: eosIds,
  };
}

/** Decodes each rollout's text. */
export function decodeResponses(rollouts: readonly Rollout[], tokenizer: Tokenizer): void {
  for (const rollout of rollouts) rollout.response = tokenizer.decode(rollout.responseIds, { skipSpecialTokens: true });
}

function rolloutOf(prompt: PolicyPrompt, sampled: SampledResponse, group: number, rolloutIndex: number): Rollout {
  const responseIds = Int32Array.from(sampled.ids);
  const ids = new Int32Array(prompt.ids.length + responseIds.length);
  ids.set(prompt.ids);
  ids.set(responseIds, prompt.ids.length);
  return {
    prompt,
    group,
    rolloutIndex,
    ids,
    promptLength: prompt.ids.length,
    responseIds,
    response: '',
    ended: sampled.finish === 'stop',
    lpOld: Float32Array.from(sampled.logprobs),
    ...(sampled.cutMass === undefined ? {} : { cutMass: Float32Array.from(sampled.cutMass) }),
    reward: 0,
    parts: {},
    score: 0,
    advantages: new Float64Array(),
    advantage: 0,
  };
}

/** Numbers of all rollouts' tokens, concatenated. */
export function packedNumbers(
  rollouts: readonly Rollout[],
  pick: (rollout: Rollout) => ArrayLike<number> | undefined,
): Float64Array {
  const parts = rollouts.map((rollout) => pick(rollout) ?? []);
  const all = new Float64Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A rollout as input for a scorer. */
export function rewardItem({ prompt, response }: Pick<Rollout, 'prompt' | 'response'>): RewardItem {
  const { example, answer, messages } = prompt;
  // A final answer extracted from the row's solution takes precedence over the column.
  const fields = { ...prompt.fields, ...(answer === undefined ? {} : { answer }) };
  return {
    prompt: messages,
    response,
    ...(example === undefined ? {} : { example }),
    ...(Object.keys(fields).length === 0 ? {} : { fields }),
  };
}

/** The policy's own ids among those of an episode. */
export const ownIds = (ids: readonly number[], spans: readonly number[]): Int32Array =>
  Int32Array.from(spans.flatMap((from, i) => (i % 2 === 0 ? ids.slice(from, spans[i + 1]) : [])));
