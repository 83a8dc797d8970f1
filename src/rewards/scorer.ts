/**
 * Anything that scores responses: a reward model, a task's verifier, a program of the user's, a weighted sum of them.
 *
 *     const scorer: RewardScorer = await loadRewardModel('./checkpoints/rm/run/final');
 *     await scorer.score([{ prompt: 'What is 2 + 2?', response: '4' }]);      // [1.7]
 */
import type { Example } from '../tasks/index.ts';
import type { Message } from '../text/index.ts';

export interface RewardItem {
  prompt: string | readonly Message[];
  response: string;
  /** The response's steps, where they are known; else its lines are. */
  steps?: readonly string[];
  /** The problem behind the prompt, where it is a task's: what a verifier needs to judge the response. */
  example?: Pick<Example, 'task' | 'answer' | 'meta'>;
  /** Further columns of the row, for programs of the user's. */
  fields?: Readonly<Record<string, unknown>>;
}

export interface ScoreOptions {
  signal?: AbortSignal;
}

export interface RewardScorer {
  readonly name: string;
  /** One number per item, in their order. */
  score(items: readonly RewardItem[], options?: ScoreOptions): Promise<number[]>;
  /** The numbers that make up the score, by name, where there are several; before weights are applied. */
  parts?(items: readonly RewardItem[], options?: ScoreOptions): Promise<RewardParts>;
  dispose?(): void;
}

export interface RewardParts {
  total: number[];
  parts: Record<string, number[]>;
}

/** Total and parts of any scorer; one that has no parts is its own only part. */
export async function scoreParts(
  scorer: RewardScorer,
  items: readonly RewardItem[],
  options: ScoreOptions = {},
): Promise<RewardParts> {
  if (scorer.parts !== undefined) return scorer.parts(items, options);
  const total = await scorer.score(items, options);
  return { total, parts: { [scorer.name]: total } };
}

export function promptMessages(prompt: RewardItem['prompt']): readonly Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
}
