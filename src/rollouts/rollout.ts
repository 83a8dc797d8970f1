/**
 * One response that the policy gave, with everything that is known of it, on the host: what lies between sampling and the
 * losses, whatever device either runs on.
 */

import type { PromptedResponse } from '../models/decoder/responses.ts';
import type { Generation, GenerationRequest, Sampler } from '../models/index.ts';
import { Random } from '../random.ts';
import type { RewardItem } from '../rewards/index.ts';
import type { Tokenizer } from '../text/index.ts';
import type { PolicyPrompt } from './prompts.ts';

/** The sampler as rollouts use it; a test may stand in for it. */
export type RolloutSampler = Pick<Sampler, 'generate' | 'dispose'>;

export interface Rollout extends PromptedResponse {
  prompt: PolicyPrompt;
  /** Which of the step's prompts, and which of its responses. */
  group: number;
  rolloutIndex: number;
  /** The response alone; the token that ended it is its last. */
  completionIds: Int32Array;
  completion: string;
  /** Ended by itself, not cut at the most tokens allowed. */
  ended: boolean;
  /** Log-probs of the response's tokens under the weights that sampled them. */
  lpOld: Float32Array;
  /** The same as the trainer computed them, where those are asked for. */
  lpTrainer?: Float32Array;
  lpRef?: Float32Array;
  /** V of each token's state under the weights that sampled. */
  values?: Float32Array;
  /** What the losses maximise: weighted parts, normalised and with penalties. */
  reward: number;
  /** The parts before weights, by name, and the weighted sum of them. */
  parts: Record<string, number>;
  score: number;
  /** Whether the verifier found it right; undefined where there is none. */
  correct?: boolean;
  /** A_t, and what is kept of them for the records. */
  advantages: Float64Array;
  advantage: number;
  returns?: Float64Array;
}

export interface RolloutOptions {
  groupSize: number;
  maxNewTokens: number;
  temperature: number;
  topP?: number;
  topK?: number;
  minP?: number;
}

/** Every prompt's responses; the seed and the key (step, round, …) alone decide what is drawn. */
export async function sampleRollouts(
  sampler: RolloutSampler,
  tokenizer: Tokenizer,
  prompts: readonly PolicyPrompt[],
  options: RolloutOptions & { seed: number; key: readonly (string | number)[] },
  signal?: AbortSignal,
): Promise<Rollout[]> {
  const { groupSize, maxNewTokens, temperature, topP, topK, minP, seed, key } = options;
  const requests = prompts.map(
    ({ ids }, i): GenerationRequest => ({
      prompt: ids,
      samples: groupSize,
      maxNewTokens,
      temperature,
      ...(topP !== undefined && topP < 1 ? { topP } : {}),
      ...(topK !== undefined && topK > 0 ? { topK } : {}),
      ...(minP !== undefined && minP > 0 ? { minP } : {}),
      stopIds: tokenizer.eosIds,
      seed: new Random('rollout', seed, ...key, i).uint32(),
    }),
  );
  const generations = await sampler.generate(requests, { signal });
  signal?.throwIfAborted();
  return generations.flatMap((group, i) =>
    group.map((generation, k) => rolloutOf(prompts[i] as PolicyPrompt, generation, tokenizer, i, k)),
  );
}

function rolloutOf(
  prompt: PolicyPrompt,
  generation: Generation,
  tokenizer: Tokenizer,
  group: number,
  rolloutIndex: number,
): Rollout {
  const completionIds = Int32Array.from(generation.ids);
  return {
    prompt,
    group,
    rolloutIndex,
    ids: Int32Array.from([...prompt.ids, ...completionIds]),
    promptLength: prompt.ids.length,
    completionIds,
    completion: tokenizer.decode(completionIds, { skipSpecialTokens: true }),
    ended: generation.finish === 'stop',
    lpOld: Float32Array.from(generation.logprobs),
    reward: 0,
    parts: {},
    score: 0,
    advantages: new Float64Array(),
    advantage: 0,
  };
}

/** What a scorer is shown of a rollout. */
export function rewardItem({ prompt, completion }: Pick<Rollout, 'prompt' | 'completion'>): RewardItem {
  const { example, answer, messages } = prompt;
  return {
    prompt: messages,
    response: completion,
    ...(example === undefined ? {} : { example }),
    ...(answer === undefined ? {} : { fields: { answer } }),
  };
}
