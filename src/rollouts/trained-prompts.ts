/** Finds which prompts of an evaluation a run trains on, from the run's own seed and number of held-out prompts. */
import type { Tokenizer } from '../text/index.ts';
import { openPrompts, type PromptsConfig } from './opening.ts';
import { type PolicyPrompt, taskOf } from './prompts.ts';

/** How many of the prompts a run of this config trains on; undefined if unknown. */
export async function countTrainedOn(
  config: PromptsConfig,
  prompts: readonly PolicyPrompt[],
  tokenizer: Tokenizer,
): Promise<number | undefined> {
  // Test problems of tasks are never trained on, whatever the seed.
  const areOfTasks = prompts.every((prompt) => taskOf(prompt) !== undefined);
  if ((config.task ?? config.env ?? config.agent) !== undefined) return areOfTasks ? 0 : undefined;
  // Task problems are unlikely to appear in a dataset, which may be a long download.
  if (areOfTasks) return undefined;
  if (config.dataset === undefined) return undefined; // a program's in-memory rows
  // One retry only: a note is not worth the usual half minute of waiting for the hub.
  const { train } = await openPrompts(config, tokenizer, { hubRetries: 1 });
  const trained = new Set(train.map(asked));
  return prompts.filter((prompt) => trained.has(asked(prompt))).length;
}

/** A prompt without its system message, which the evaluation may set differently. */
const asked = ({ messages }: PolicyPrompt) => JSON.stringify(messages.filter(({ role }) => role !== 'system'));
