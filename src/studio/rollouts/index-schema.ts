/**
 * The index of a rollout database: narrow rows to filter and sort by, and the words of prompts and responses. It lies in
 * a cache of its own, because a training may be writing the database; it can be deleted at any time and is made again.
 */

/** What is indexed: training rollouts and held-out ones have separate tables. */
export const sides = ['train', 'eval'] as const;
export type Side = (typeof sides)[number];

/** Tables of the database and of the index. */
export const tablesOf = (side: Side) =>
  side === 'train'
    ? { rows: 'rows', words: 'words', source: 'rollouts', facts: 'rollout_facts', parts: 'reward_parts' }
    : {
        rows: 'eval_rows',
        words: 'eval_words',
        source: 'eval_rollouts',
        facts: 'eval_rollout_facts',
        parts: 'eval_reward_parts',
      };

/** Another number makes old indexes be built again. */
export const indexVersion = 3;

export const indexSql = sides
  .map(tablesOf)
  .map(
    ({ rows, words }) => `
create table if not exists ${rows}(
  id integer primary key, step integer not null, prompt_index integer not null, reward real, advantage real,
  length integer not null, correct integer, ended integer, task text, kl real);
create index if not exists ${rows}_step on ${rows}(step, reward, correct);
create index if not exists ${rows}_reward on ${rows}(reward);
create index if not exists ${rows}_advantage on ${rows}(advantage);
create index if not exists ${rows}_length on ${rows}(length);
create index if not exists ${rows}_kl on ${rows}(kl);
create index if not exists ${rows}_prompt on ${rows}(prompt_index, step);
create index if not exists ${rows}_rare on ${rows}(ended, correct, step);
create virtual table if not exists ${words} using fts5(prompt, completion, content='', tokenize='unicode61');`,
  )
  .concat('create table if not exists state(name text primary key, value text);')
  .join('\n');

/** How far an index is: highest id of the rows and of the words, and how many rows the database has. */
export interface IndexState {
  rows: Record<Side, number>;
  words: Record<Side, number>;
  source: Record<Side, number>;
  tasks: string[];
}
