/** Converts rollouts to rows of the database. */
import type { EvalRollout, RolloutFacts, RolloutTokens, Rollout as StoredRow } from '../runs/index.ts';
import { type PolicyPrompt, taskOf } from './prompts.ts';
import { type Rollout, saidIn } from './rollout.ts';

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
    ...episodeOf(rollout),
    ...(tokens
      ? {
          tokens: {
            promptIds: rollout.prompt.ids,
            completionIds: rollout.responseIds,
            logprobs: rollout.lpOld,
            refLogprobs: rollout.lpRef ?? rollout.lpTeacher,
            values: rollout.values,
            advantages: Float32Array.from(rollout.advantages),
            ...sequenceOf(rollout),
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
    ...episodeOf(rollout),
  }));
}

function episodeOf({ episode }: Rollout): Pick<StoredRow, 'episode'> {
  if (episode === undefined) return {};
  const turns = saidIn(episode).map(({ turn, ...said }) =>
    turn === undefined ? said : { ...said, tokens: turn.tokens, reward: turn.reward },
  );
  return { episode: { end: episode.end, turns } };
}

function sequenceOf({ ids, promptLength, spans, starts }: Rollout): Pick<RolloutTokens, 'sequence'> {
  if (spans === undefined) return {};
  const several = starts !== undefined && { starts: Int32Array.from(starts) };
  return { sequence: { ids: ids.slice(promptLength), spans: Int32Array.from(spans), ...several } };
}

/** The parts of the score, their weighted sum, and the verifier's result. */
function partsOf({ parts, score, correct }: Rollout): Record<string, number> {
  return { ...parts, score, ...(correct === undefined ? {} : { correct: Number(correct) }) };
}

function factsOf({ prompt, ended, responseIds }: Rollout): RolloutFacts {
  const task = taskOf(prompt);
  return { ...(task === undefined ? {} : { task }), ended, lengthTokens: responseIds.length };
}

/** A single user message as written; a longer conversation as rendered for the model. */
export function promptLabel({ messages, text }: PolicyPrompt): string {
  const [only] = messages;
  return messages.length === 1 && only?.role === 'user' ? only.content : text;
}
