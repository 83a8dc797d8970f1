/**
 * The tables of `rollouts.db`. Users query `rollouts` and `eval_rollouts`. Reward parts and per-token data are in
 * separate tables, which keeps those two fast to scan.
 */
export interface Rollout {
  step: number;
  epoch: number;
  promptIndex: number;
  rolloutIndex: number;
  prompt: string;
  completion: string;
  reward: number;
  advantage: number;
  /** Named parts of the reward. */
  parts?: Record<string, number>;
  /** Facts by which lists of rollouts can be filtered. */
  facts?: RolloutFacts;
  /** The turns of an episode of an environment. */
  episode?: StoredEpisode;
  tokens?: RolloutTokens;
}

/** An episode of an environment, turn by turn. */
export interface StoredEpisode {
  /** Why it ended: done, turns, length or error. */
  end: string;
  turns: readonly StoredTurn[];
}

/** A message after the prompt, and who wrote it. Only the policy's own turns have tokens and rewards. */
export interface StoredTurn {
  role: string;
  content: string;
  tokens?: number;
  reward?: number;
}

/** Facts about a response that are not in its text. */
export interface RolloutFacts {
  /** The prompt's task. */
  task?: string;
  /** Ended by itself instead of being cut off at the length limit. */
  ended: boolean;
  lengthTokens: number;
}

export interface EvalRollout extends Omit<Rollout, 'rolloutIndex' | 'advantage' | 'tokens'> {}

/** Per-token data, from which `attune replay` recomputes a step's losses. */
export interface RolloutTokens {
  promptIds: Int32Array;
  completionIds: Int32Array;
  /** Log-probs under the weights that sampled, at the sampling temperature. */
  logprobs: Float32Array;
  /** Log-probs under the frozen model that the policy is compared with: reference or teacher. */
  refLogprobs?: Float32Array;
  values?: Float32Array;
  /** Per-token advantages, if they vary along a response (GAE). */
  advantages?: Float32Array;
  /**
   * For an episode: all ids after the prompt, and the policy's own (`completionIds`) as [start, end, start, end, …],
   * counted from the beginning of the prompt. `starts`: where an agent's conversations begin in the ids.
   */
  sequence?: { ids: Int32Array; spans: Int32Array; starts?: Int32Array };
}

export const schemaSql = `
create table if not exists rollouts(
  id integer primary key, step integer not null, epoch integer not null, prompt_index integer not null,
  rollout_index integer not null, prompt text not null, completion text not null, reward real, advantage real);
create index if not exists rollouts_step on rollouts(step);
create table if not exists eval_rollouts(
  id integer primary key, step integer not null, epoch integer not null, prompt_index integer not null,
  prompt text not null, completion text not null, reward real);
create index if not exists eval_rollouts_step on eval_rollouts(step);
create table if not exists reward_parts(rollout_id integer not null, name text not null, value real, primary key(rollout_id, name)) without rowid;
create table if not exists eval_reward_parts(rollout_id integer not null, name text not null, value real, primary key(rollout_id, name)) without rowid;
create table if not exists rollout_facts(rollout_id integer primary key, task text, ended integer not null, length_tokens integer not null);
create table if not exists eval_rollout_facts(rollout_id integer primary key, task text, ended integer not null, length_tokens integer not null);
create table if not exists rollout_tokens(
  rollout_id integer primary key, prompt_ids blob not null, completion_ids blob not null, logprobs blob not null,
  ref_logprobs blob, value_estimates blob, advantages blob);
create table if not exists rollout_sequences(rollout_id integer primary key, ids blob not null, spans blob not null);
create table if not exists rollout_sequence_starts(rollout_id integer primary key, starts blob not null);
create table if not exists rollout_episodes(rollout_id integer primary key, ended_by text not null, turns integer not null);
create table if not exists eval_rollout_episodes(rollout_id integer primary key, ended_by text not null, turns integer not null);
create table if not exists rollout_turns(
  rollout_id integer not null, place integer not null, role text not null, content text not null, tokens integer, reward real,
  primary key(rollout_id, place)) without rowid;
create table if not exists eval_rollout_turns(
  rollout_id integer not null, place integer not null, role text not null, content text not null, tokens integer, reward real,
  primary key(rollout_id, place)) without rowid;
`;

/** Requests to the writer thread. Each is acknowledged by its number. */
export type RolloutRequest =
  | { kind: 'open'; number: number; path: string; resumedAt?: number }
  | { kind: 'rows'; number: number; rollouts?: Rollout[]; evalRollouts?: EvalRollout[] }
  | { kind: 'flush'; number: number }
  | { kind: 'close'; number: number };

export interface RolloutReply {
  number: number;
  error?: string;
}
