/**
 * Anything that scores responses: a reward model, a task's verifier, a program of the user's, a weighted sum of them.
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
  /** The response's steps; its lines unless given. */
  steps?: readonly string[];
  /** The problem behind a task's prompt, which its verifier needs. */
  example?: Pick<Example, 'task' | 'answer' | 'meta'>;
  /**
   * Further columns of the prompt's row, for reward functions: strings, numbers, booleans, lists and objects as they are.
   * `answer` is the final answer.
   */
  fields?: Readonly<Record<string, unknown>>;
}

/** Options of a scorer's call. */
export interface ScoreOptions {
  signal?: AbortSignal;
  /** Called for each item that has more tokens than a reward model reads: its score is that of its last ones alone. */
  onTruncated?: (item: RewardItem) => void;
}

/** Anything that scores responses. */
export interface RewardScorer {
  readonly name: string;
  /** One number per item, in their order. */
  score(items: readonly RewardItem[], options?: ScoreOptions): Promise<number[]>;
  /** The numbers that make up the score, by name, where there are several; before weights are applied. */
  parts?(items: readonly RewardItem[], options?: ScoreOptions): Promise<RewardParts>;
  dispose?(): void;
}

/** Total rewards, and the parts they are made of by name. */
export interface RewardParts {
  total: number[];
  parts: Record<string, number[]>;
}

/** Total and parts of any scorer; a scorer without parts has itself as its only part. */
export async function scoreParts(
  scorer: RewardScorer,
  items: readonly RewardItem[],
  options: ScoreOptions = {},
): Promise<RewardParts> {
  if (scorer.parts !== undefined) return scorer.parts(items, options);
  const total = await scorer.score(items, options);
  return { total, parts: { [scorer.name]: total } };
}

/** Whether a number can be a reward: its spread within a group has to be a number of float32, too. */
export const isReward = (value: number): boolean => Number.isFinite(Math.fround(value * value));

/** An argument that scores. */
export const anyScorer: Rule = {
  fits: (value) => typeof (value as RewardScorer | null | undefined)?.score === 'function',
  wanted: 'a scorer',
};

const itemRules = { prompt: either(text, list(anything)), response: text, steps: list(text) };

/** Refuses what is no list of prompts with responses. */
export function checkItems(items: readonly RewardItem[]): void {
  if (!Array.isArray(items)) throw new UserError('A scorer takes a list of items, each with a prompt and a response.');
  for (const [i, item] of items.entries()) checkArguments(`item ${i}`, item, itemRules, ['prompt', 'response']);
}

/** A prompt as a list of messages; a plain string is one user message. */
export function promptMessages(prompt: RewardItem['prompt']): readonly Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
}
