/** The notes in a reward model's checkpoint: its type, the token that is scored, and the scale of its scores. */
import { UserError } from '../errors.ts';
import type { HeadKind, Model } from '../models/index.ts';
import type { PromptFormat } from '../text/index.ts';

/** The kinds of reward model: preference (Bradley–Terry), outcome (ORM), process (PRM). */
export const rewardTypes = ['preference', 'outcome', 'process'] as const;
/** The kind of a reward model. */
export type RewardType = (typeof rewardTypes)[number];

/** The score head of each type of reward model. */
export const rewardHeads: Record<RewardType, { kind: HeadKind; outputs: number }> = {
  preference: { kind: 'reward', outputs: 1 },
  outcome: { kind: 'value', outputs: 1 },
  process: { kind: 'classes', outputs: 3 },
};

/** The notes that training writes to config.json under `attune.reward`. */
export interface RewardNotes {
  type: RewardType;
  /** Optimiser steps that the head was trained for. */
  step: number;
  stripThinking: boolean;
  format: PromptFormat;
  stepSeparator: string;
  maxLength: number;
  /**
   * The token whose score counts. `end-of-turn`: the one that closes the response, as attune trains. `end-of-text`: the
   * last one of the rendered template (often a line feed after the turn), as TRL trains and
   * AutoModelForSequenceClassification reads. Checkpoints without it are attune's own.
   */
  readAt?: 'end-of-turn' | 'end-of-text';
  /** Mean and standard deviation of the scores on held-out responses. */
  mean: number;
  std: number;
  count: number;
}

const advice = 'Train one with: attune train reward';

export const noRewardHead = (name: string) =>
  new UserError(`${name} is a language model: it has no reward head. ${advice}`);

/**
 * The notes of a reward model. Throws a UserError for any other model. `task` is an adapter's `task_type`: on a causal
 * base model, nothing else says that the head is a classifier.
 */
export function rewardNotes(model: Model, name: string, task?: string): RewardNotes {
  const { head } = model;
  if (head === null) throw noRewardHead(name);
  const notes = model.notes.reward as RewardNotes | undefined;
  if (notes === undefined) {
    if (isForeign(model, task)) return { ...foreignNotes };
    throw new UserError(
      `${name} has a head with ${head.outputs} output${head.outputs === 1 ? '' : 's'} (${head.kind}) that was not trained as a reward model. ${advice}`,
    );
  }
  const wanted = rewardHeads[notes.type];
  if (wanted === undefined || head.outputs !== wanted.outputs) {
    throw new UserError(
      `${name} calls itself a reward model of type "${notes.type}", but its head has ${head.outputs} outputs.`,
    );
  }
  if (!(notes.step > 0)) throw new UserError(`${name} has a reward head that was never trained. ${advice}`);
  if (!head.weight.numbers().every(Number.isFinite))
    throw new UserError(`${name}: the head holds numbers that are not finite; its training diverged.`);
  return notes;
}

/** Whether another library trained it: a sequence classifier, or a PEFT adapter of one, with a single output. */
function isForeign(model: Model, task: string | undefined): boolean {
  if (model.head?.outputs !== 1) return false;
  if (task !== undefined) return task === 'SEQ_CLS';
  const architectures = (model.config.architectures ?? []) as string[];
  return model.notes.head === undefined && architectures.some((each) => each.endsWith('ForSequenceClassification'));
}

const foreignNotes: RewardNotes = {
  type: 'preference',
  step: 1,
  stripThinking: false,
  format: 'auto',
  stepSeparator: '\n',
  maxLength: 4096,
  readAt: 'end-of-text',
  mean: 0,
  std: 0,
  count: 0,
};
