/** Well-known sets that need settings of their own. Everything else is recognised by its columns. */
import { lookup } from '../../lookup.ts';
import type { ColumnNames } from './columns.ts';
import type { Shape } from './shapes.ts';

export interface KnownSet {
  shape: Shape;
  columns?: ColumnNames;
  /** Splits with another name on the hub. */
  splits?: Record<string, string>;
  /** The default subset. */
  subset?: string;
  /** Files to ignore. */
  without?: RegExp;
}

const ultrafeedback: KnownSet = {
  shape: 'preference',
  columns: { scoreChosen: 'score_chosen', scoreRejected: 'score_rejected' },
};
const prm800k: KnownSet = { shape: 'steps' };

const known: Record<string, KnownSet> = {
  // Red-team dialogues have no pairs.
  'anthropic/hh-rlhf': { shape: 'preference', without: /red-team/ },
  'trl-lib/ultrafeedback_binarized': ultrafeedback,
  'huggingfaceh4/ultrafeedback_binarized': {
    ...ultrafeedback,
    splits: { train: 'train_prefs', test: 'test_prefs', validation: 'test_prefs' },
  },
  'argilla/ultrafeedback-binarized-preferences': {
    shape: 'preference',
    columns: { prompt: 'instruction', chosen: 'chosen_response', rejected: 'rejected_response' },
  },
  'argilla/ultrafeedback-binarized-preferences-cleaned': {
    shape: 'preference',
    columns: { prompt: 'prompt', scoreChosen: 'chosen-rating', scoreRejected: 'rejected-rating' },
  },
  'intel/orca_dpo_pairs': { shape: 'preference', columns: { system: 'system', prompt: 'question' } },
  // data/{finetune,reward,rl,evaluation}: the part meant for preference training is "rl".
  'lvwerra/stack-exchange-paired': {
    shape: 'preference',
    subset: 'rl',
    columns: { prompt: 'question', chosen: 'response_j', rejected: 'response_k' },
  },
  'openai/gsm8k': {
    shape: 'messages',
    subset: 'main',
    columns: { prompt: 'question', completion: 'answer', answer: 'answer' },
  },
  'openai/prm800k': prm800k,
  'tasksource/prm800k': prm800k,
};

export function knownSet(name: string): KnownSet | undefined {
  return lookup(known, name.toLowerCase());
}

/** Hub names of the sets for which attune has settings of its own. */
export function knownNames(): string[] {
  return Object.keys(known);
}
