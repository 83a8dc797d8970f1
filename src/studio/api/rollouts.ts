/** Rollouts: the table, one rollout to the token, one prompt over time, a step under another algorithm. */

/**
 * GET /api/runs/:id/rollouts?step=&from=&to=&q=&minReward=&maxReward=&minLength=&maxLength=&ending=&task=&correct=
 * &prompt=&sort=&dir=&offset=&limit=&eval=1
 *
 * `q` is full text over prompt and response: words (all must occur), "exact phrases", word* for a beginning. Lengths
 * are tokens where they are stored, else characters (`RolloutsAnswer.lengthUnit`).
 */
export interface RolloutQuery {
  step?: number;
  from?: number;
  to?: number;
  q?: string;
  minReward?: number;
  maxReward?: number;
  minLength?: number;
  maxLength?: number;
  ending?: RolloutEnding;
  task?: string;
  correct?: boolean;
  prompt?: number;
  sort?: RolloutSort;
  dir?: 'asc' | 'desc';
  offset?: number;
  /** At most 500; 50 unless given. */
  limit?: number;
  /** Responses to held-out prompts. */
  eval?: boolean;
}
export type RolloutSort = 'id' | 'step' | 'reward' | 'advantage' | 'kl' | 'length' | 'prompt';
/** ended: it stopped by itself. cut: it reached the length limit. Known where tokens are stored. */
export type RolloutEnding = 'ended' | 'cut';

export interface RolloutsAnswer {
  /** All that match. */
  total: number;
  rows: RolloutRow[];
  lengthUnit: 'tokens' | 'characters';
  /** Tasks that occur in this run, for the filter. */
  tasks: string[];
  /** Whether correctness, endings, tokens and the KL to the reference are known, so that their filters make sense. */
  has: { correct: boolean; ending: boolean; tokens: boolean; kl: boolean };
  /** Share of the rows that the full-text index holds; below 1 it is still being built, and `q` misses the rest. */
  indexed: number;
}

export interface RolloutRow {
  id: number;
  step: number;
  epoch: number;
  promptIndex: number;
  /** Absent for held-out rows. */
  rolloutIndex?: number;
  /** The first 300 characters. */
  prompt: string;
  completion: string;
  reward: number | null;
  advantage?: number | null;
  /** Mean k3 estimate of the KL to the reference over its tokens, in nats; where tokens and a reference are stored. */
  kl?: number;
  length: number;
  correct?: boolean;
  ending?: RolloutEnding;
  task?: string;
  /** Named parts of the reward. */
  parts: Record<string, number>;
}

/** GET /api/runs/:id/rollouts/:rollout?eval=1&checkpoint=step-50 */
export interface RolloutDetail extends RolloutRow {
  /** Whole texts (the row has their beginnings). */
  promptText: string;
  completionText: string;
  /** What was said in an episode of an environment, in its order; absent for a single response. */
  turns?: RolloutTurn[];
  /** Why the episode ended: done, turns, length or error. */
  episodeEnd?: string;
  /** Absent where the run stored no tokens (--save-tokens). */
  tokens?: RolloutToken[];
  /** The prompt's tokens: text only. */
  promptTokens?: { id: number; text: string }[];
  /** The checkpoint under whose weights entropy, ratio and clip were computed; absent without `checkpoint`. */
  scoredUnder?: string;
  /** Clip range of the run's algorithm, that `clipped` refers to. */
  clip?: { low: number; high: number };
  /** Ids of the same group's rollouts (same step, same prompt), in order, this one included. */
  group: number[];
  /** The same rollouts with what the group compares. */
  peers: { id: number; reward: number | null; correct?: boolean }[];
  /** Neighbours in the table's plain order. */
  previous?: number;
  next?: number;
  /** Checkpoints that can score it. */
  checkpoints: string[];
}

/** Tokens and rewards are those of the policy's own turns. */
export interface RolloutTurn {
  role: string;
  content: string;
  tokens?: number;
  reward?: number;
}

export interface RolloutToken {
  id: number;
  /** The text that this token adds; pieces of one character are given with the token that completes it. */
  text: string;
  /** Under the weights that sampled it. */
  logprob: number;
  refLogprob?: number;
  /** k3 estimate of KL(policy ‖ reference) at this token, from logprob and refLogprob. */
  kl?: number;
  advantage: number;
  /** The critic's value (PPO). */
  value?: number;
  /** Nats, over the whole vocabulary; with `checkpoint`. */
  entropy?: number;
  /** exp(log-prob under the checkpoint − logprob); with `checkpoint`. */
  ratio?: number;
  /** The ratio lies outside the clip range on the side that stops the gradient; with `checkpoint`. */
  clipped?: boolean;
}

/** GET /api/runs/:id/prompts/:promptIndex?eval=1: the same prompt at every step, oldest first. */
export interface PromptHistory {
  promptIndex: number;
  prompt: string;
  rows: PromptAnswer[];
}
export interface PromptAnswer {
  id: number;
  step: number;
  completion: string;
  reward: number | null;
  correct?: boolean;
  length: number;
}

/** GET /api/runs/:id/steps?eval=1 : for the slider. */
export interface StepsAnswer {
  steps: StepSummary[];
}
export interface StepSummary {
  step: number;
  count: number;
  meanReward: number | null;
  minReward: number | null;
  maxReward: number | null;
  /** Share right, where a verifier says so. */
  accuracy?: number;
}

/** POST /api/runs/:id/whatif */
export interface WhatIfRequest {
  step: number;
  /** Left out: the run's own. */
  algorithm?: string;
  /** Options of the policy trainer by name (clip_low, kl_coef, advantage, …), as in the config. */
  options?: Record<string, unknown>;
  /**
   * Weights of the policy: the sampler's own (ratio 1 everywhere: the step's first update), or a checkpoint's, which
   * shows ratios and clipping.
   */
  checkpoint?: string;
}
export interface WhatIfAnswer {
  step: number;
  recorded: WhatIfSide;
  changed: WhatIfSide;
  rollouts: WhatIfRollout[];
  /** How far the recomputed recorded side is from the metrics that the run wrote. */
  agrees: boolean;
  samplerGap: number;
  /** Algorithms that can be asked for. */
  algorithms: string[];
  /** What could not be compared, in words (a critic's values are missing, entropies are not stored, …). */
  notes: string[];
  checkpoint?: string;
}
export interface WhatIfSide {
  algorithm: string;
  /** Options that the algorithm reads, with the values used. */
  options: Record<string, unknown>;
  /** Terms of the loss: policy_loss, value_loss, kl. */
  losses: Record<string, number | null>;
  /** As the run logged them; of the recorded side only. */
  logged?: Record<string, number | null>;
  shareClipped: number;
  meanRatio: number;
  /** Rollouts that gave a gradient (not dropped, advantage not 0). */
  trained: number;
}
export interface WhatIfRollout {
  id: number;
  reward: number;
  recorded: number;
  changed: number;
  /** Per token, under the changed side. */
  ratio: number[];
  /** 1 where the changed side clips, else 0. */
  clipped: number[];
  advantages: number[];
  /** Per token, where the recorded side clips. */
  clippedRecorded: number[];
}
