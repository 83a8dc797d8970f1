/** Makes a file's rows from a policy's responses. */
import { UserError } from '../../errors.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import type { Rollout, RolloutSampler, sampleRollouts } from '../../rollouts/rollout.ts';
import type { Message } from '../../text/index.ts';
import type { BuildPreferencesConfig } from './config.ts';

export interface RowContext {
  config: BuildPreferencesConfig;
  prompts: readonly PolicyPrompt[];
  sampler: RolloutSampler;
  tokenizer: Parameters<typeof sampleRollouts>[1];
}

/** A batch of prompts with `samples` responses each, one prompt after another. */
export interface RowBatch {
  /** The index of the first prompt. */
  first: number;
  prompts: readonly PolicyPrompt[];
  rollouts: readonly Rollout[];
  signal?: AbortSignal;
}

export interface RowMaker<Summary> {
  /** The rows of each prompt. Each row becomes a line of JSON. */
  rows(batch: RowBatch): Promise<object[][]>;
  summary(): Summary;
}

/** A single user message as plain text, a longer conversation as messages. */
export function asWritten(messages: readonly Message[]): string | readonly Message[] {
  const [only] = messages;
  return messages.length === 1 && only?.role === 'user' ? only.content : messages;
}

/** The distinct responses to one prompt. */
export function distinctResponses({ rollouts }: RowBatch, place: number, samples: number): Rollout[] {
  const own = rollouts.slice(place * samples, (place + 1) * samples);
  return [...new Map(own.map((rollout) => [rollout.response, rollout])).values()];
}

/** Refuses prompts whose answers cannot be verified. */
export function checkVerifiable(prompts: readonly PolicyPrompt[], kind: string): void {
  if (prompts.every(({ example, answer }) => example !== undefined || answer !== undefined)) return;
  throw new UserError(
    `--kind ${kind} needs to know what is right: name a --task, or a --dataset whose rows have a final answer (such as openai/gsm8k).`,
  );
}
