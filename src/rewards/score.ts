/**
 * Scores one or several responses with a reward model, a verifier or your own function.
 *
 *     await score({ model: './checkpoints/rm/run/final', prompt: 'What is 2 + 2?', response: '4' });            // 1.7
 *     await score({ model: scorer, messages, responses: ['4', '5'] });                                        // [1.7, -0.4]
 */
import { signal as abortSignal, anything, checkArguments, either, list, type Rule, text } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import type { Message } from '../text/index.ts';
import { loadRewardModel } from './reward-model.ts';
import { anyScorer, type RewardScorer } from './scorer.ts';

/** The response or responses to score, and the scorer. */
export interface ScoreRequest {
  /** A reward model's folder or hub name, or any scorer. */
  model: string | RewardScorer;
  prompt?: string;
  /** A conversation instead of a single prompt. */
  messages?: readonly Message[];
  signal?: AbortSignal;
}

const rules: Record<keyof ScoreRequest | 'response' | 'responses', Rule> = {
  model: {
    fits: either(text, anyScorer).fits,
    wanted: "a reward model's folder, its name on the hub or a scorer",
  },
  prompt: text,
  messages: list(anything),
  response: text,
  responses: list(text),
  signal: abortSignal,
};

/**
 * The reward of one response, or one number for each of several. A model given by name is loaded for the call and then
 * freed.
 */
export function score(request: ScoreRequest & { responses: readonly string[] }): Promise<number[]>;
export function score(request: ScoreRequest & { response: string }): Promise<number>;
export async function score(
  request: ScoreRequest & { response?: string; responses?: readonly string[] },
): Promise<number | number[]> {
  checkArguments('score', request, rules, ['model']);
  checkNames('score', request, Object.keys(rules));
  const { model, prompt, messages, signal, response, responses } = request;
  const asked = messages ?? prompt;
  if (asked === undefined || (messages !== undefined && prompt !== undefined))
    throw new UserError('Give the `prompt` or the `messages` that the response answers.');
  if ((response === undefined) === (responses === undefined))
    throw new UserError('Give one `response`, or several `responses`.');
  const items = (responses ?? [response as string]).map((each) => ({ prompt: asked, response: each }));
  const scorer = typeof model === 'string' ? await loadRewardModel(model) : model;
  try {
    const scores = await scorer.score(items, { signal });
    return responses === undefined ? (scores[0] as number) : scores;
  } finally {
    if (typeof model === 'string') scorer.dispose?.();
  }
}
