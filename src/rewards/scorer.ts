/**
 * Anything that scores responses: a reward model, a task's verifier, your own program, or a weighted sum of them.
 *
 *     const scorer: RewardScorer = await loadRewardModel('./checkpoints/rm/run/final');
 *     await scorer.score([{ prompt: 'What is 2 + 2?', response: '4' }]);      // [1.7]
 */
import { anything, checkArguments, either, list, type Rule, text } from '../arguments.ts';
import { UserError } from '../errors.ts';
import type { Example } from '../tasks/index.ts';
import type { Message } from '../text/index.ts';

/** A prompt and a response to score. */
export interface RewardItem {
  prompt: string | readonly Message[];
  response: string;
  /** The response's steps. Default: its lines. */
  steps?: readonly string[];
  /** The task problem behind the prompt, which the task's verifier needs. */
  example?: Pick<Example, 'task' | 'answer' | 'meta'>;
  /**
   * Other columns of the prompt's row, for reward functions: strings, numbers, booleans, lists and objects, unchanged.
   * `answer` is the final answer.
   */
  fields?: Readonly<Record<string, unknown>>;
}

/** Options of a scorer's call. */
export interface ScoreOptions {
  signal?: AbortSignal;
  /** Called for each item that is too long for the reward model, which scores only its last tokens. */
  onTruncated?: (item: RewardItem) => void;
}

/** Anything that scores responses. */
export interface RewardScorer {
  readonly name: string;
  /** One number per item, in order. */
  score(items: readonly RewardItem[], options?: ScoreOptions): Promise<number[]>;
  /** The named numbers that make up the score, before weighting, if there are several. */
  parts?(items: readonly RewardItem[], options?: ScoreOptions): Promise<RewardParts>;
  dispose?(): void;
}

/** Total rewards, and their named parts. */
export interface RewardParts {
  total: number[];
  parts: Record<string, number[]>;
}

/** Total and parts of any scorer; a scorer without parts is its own only part. */
export async function scoreParts(
  scorer: RewardScorer,
  items: readonly RewardItem[],
  options: ScoreOptions = {},
): Promise<RewardParts> {
  if (scorer.parts !== undefined) return scorer.parts(items, options);
  const total = await scorer.score(items, options);
  return { total, parts: { [scorer.name]: total } };
}

/**
 * Whether a number can be a reward. Its square must fit in float32, because the spread within a group is computed from
 * it.
 */
export const isReward = (value: number): boolean => Number.isFinite(Math.fround(value * value));

/** Rule for an argument that can score. */
export const anyScorer: Rule = {
  fits: (value) => typeof (value as RewardScorer | null | undefined)?.score === 'function',
  wanted: 'a scorer',
};

const itemRules = { prompt: either(text, list(anything)), response: text, steps: list(text) };

/** Refuses anything but a list of prompts with responses. */
export function checkItems(items: readonly RewardItem[]): void {
  if (!Array.isArray(items)) throw new UserError('A scorer takes a list of items, each with a prompt and a response.');
  for (const [i, item] of items.entries()) checkArguments(`item ${i}`, item, itemRules, ['prompt', 'response']);
}

/** A prompt as a list of messages. A plain string is one user message. */
export function promptMessages(prompt: RewardItem['prompt']): readonly Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
}
