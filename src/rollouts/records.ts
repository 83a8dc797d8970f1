/** Converts rollouts to rows of the database. */
import type { EvalRollout, RolloutFacts, Rollout as StoredRow } from '../runs/index.ts';
import type { PolicyPrompt } from './prompts.ts';
import type { Rollout } from './rollout.ts';

export function storedRollouts(
  rollouts: readonly Rollout[],
  options: { step: number; epoch: number; tokens: boolean },
): StoredRow[] {
  const { step, epoch, tokens } = options;
  return rollouts.map((rollout) => ({
    step,
    epoch,
    promptIndex: rollout.prompt.index,
    rolloutIndex: rollout.rolloutIndex,
    prompt: promptLabel(rollout.prompt),
    completion: rollout.response,
    reward: rollout.reward,
    advantage: rollout.advantage,
    parts: partsOf(rollout),
    facts: factsOf(rollout),
    ...(tokens
      ? {
          tokens: {
            promptIds: rollout.prompt.ids,
            completionIds: rollout.responseIds,
            logprobs: rollout.lpOld,
            refLogprobs: rollout.lpRef ?? rollout.lpTeacher,
            values: rollout.values,
            advantages: Float32Array.from(rollout.advantages),
          },
        }
      : {}),
  }));
}

export function storedEvaluation(
  rollouts: readonly Rollout[],
  options: { step: number; epoch: number },
): EvalRollout[] {
  return rollouts.map((rollout) => ({
    ...options,
    promptIndex: rollout.prompt.index,
    prompt: promptLabel(rollout.prompt),
    completion: rollout.response,
    reward: rollout.score,
    parts: partsOf(rollout),
    facts: factsOf(rollout),
  }));
}

/** The parts of the score, their weighted sum, and the verifier's result. */
function partsOf({ parts, score, correct }: Rollout): Record<string, number> {
  return { ...parts, score, ...(correct === undefined ? {} : { correct: Number(correct) }) };
}

function factsOf({ prompt, ended, responseIds }: Rollout): RolloutFacts {
  const task = prompt.example?.task;
  return { ...(task === undefined ? {} : { task }), ended, lengthTokens: responseIds.length };
}

/** A single user message as it was written; a longer conversation as the model reads it. */
export function promptLabel({ messages, text }: PolicyPrompt): string {
  const [only] = messages;
  return messages.length === 1 && only?.role === 'user' ? only.content : text;
}
