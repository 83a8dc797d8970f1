/** Which prompts of an evaluation a run trains on: its own seed and number of held-out prompts decide. */
import type { Tokenizer } from '../text/index.ts';
import { openPrompts, type PromptsConfig } from './opening.ts';
import { type PolicyPrompt, taskOf } from './prompts.ts';

/** How many of the prompts are among those that a run of this config trains on; undefined where that is not known. */
export async function countTrainedOn(
  config: PromptsConfig,
  prompts: readonly PolicyPrompt[],
  tokenizer: Tokenizer,
): Promise<number | undefined> {
  // Test problems of tasks are never trained on, whatever the seed.
  const areOfTasks = prompts.every((prompt) => taskOf(prompt) !== undefined);
  if ((config.task ?? config.env ?? config.agent) !== undefined) return areOfTasks ? 0 : undefined;
  // A whole dataset, which may be on the hub, is not read for problems that it hardly has.
  if (areOfTasks) return undefined;
  if (config.dataset === undefined) return undefined; // rows of a program
  // A note is not worth the half minute that a hub is waited for elsewhere.
  const { train } = await openPrompts(config, tokenizer, { hubRetries: 1 });
  const trained = new Set(train.map(asked));
  return prompts.filter((prompt) => trained.has(asked(prompt))).length;
}

/** A prompt without its system message, which an evaluation may have of its own. */
const asked = ({ messages }: PolicyPrompt) => JSON.stringify(messages.filter(({ role }) => role !== 'system'));
