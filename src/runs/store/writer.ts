/** Writes one `rollouts.db`; see rollouts.ts. */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { type EvalRollout, type Rollout, type RolloutFacts, type StoredEpisode, schemaSql } from './schema.ts';

/** Tables whose rows belong to a rollout, and are deleted with it. */
const dependants = {
  rollouts: [
    ...['reward_parts', 'rollout_facts', 'rollout_tokens'],
    ...['rollout_sequences', 'rollout_sequence_starts', 'rollout_episodes', 'rollout_turns'],
  ],
  eval_rollouts: ['eval_reward_parts', 'eval_rollout_facts', 'eval_rollout_episodes', 'eval_rollout_turns'],
};

type EpisodeInserts = Record<'episode' | 'turn', StatementSync>;

export type RolloutWriter = ReturnType<typeof openWriter>;

/** Opens or creates the database, and deletes rows of steps after `resumedAt`. */
export function openWriter(path: string, resumedAt?: number) {
  const database = new DatabaseSync(path, { timeout: 30_000 });
  try {
    return writerOf(database, resumedAt);
  } catch (error) {
    database.close();
    throw error;
  }
}

function writerOf(database: DatabaseSync, resumedAt: number | undefined) {
  database.exec('pragma journal_mode = wal; pragma synchronous = normal;');
  database.exec(schemaSql);
  const insertRollout = database.prepare(
    `insert into rollouts(step, epoch, prompt_index, rollout_index, prompt, completion, reward, advantage) values (?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const insertEval = database.prepare(
    `insert into eval_rollouts(step, epoch, prompt_index, prompt, completion, reward) values (?, ?, ?, ?, ?, ?)`,
  );
  const insertPart = database.prepare('insert into reward_parts(rollout_id, name, value) values (?, ?, ?)');
  const insertEvalPart = database.prepare('insert into eval_reward_parts(rollout_id, name, value) values (?, ?, ?)');
  const insertFacts = database.prepare(
    'insert into rollout_facts(rollout_id, task, ended, length_tokens) values (?, ?, ?, ?)',
  );
  const insertEvalFacts = database.prepare(
    'insert into eval_rollout_facts(rollout_id, task, ended, length_tokens) values (?, ?, ?, ?)',
  );
  const insertTokens = database.prepare(
    `insert into rollout_tokens(rollout_id, prompt_ids, completion_ids, logprobs, ref_logprobs, value_estimates, advantages)
     values (?, ?, ?, ?, ?, ?, ?)`,
  );
  const insertSequence = database.prepare('insert into rollout_sequences(rollout_id, ids, spans) values (?, ?, ?)');
  const insertStarts = database.prepare('insert into rollout_sequence_starts(rollout_id, starts) values (?, ?)');
  const episodeInserts = (side: '' | 'eval_'): EpisodeInserts => ({
    episode: database.prepare(`insert into ${side}rollout_episodes(rollout_id, ended_by, turns) values (?, ?, ?)`),
    turn: database.prepare(
      `insert into ${side}rollout_turns(rollout_id, place, role, content, tokens, reward) values (?, ?, ?, ?, ?, ?)`,
    ),
  });
  const insertEpisode = episodeInserts('');
  const insertEvalEpisode = episodeInserts('eval_');
  const deleteOfEvals = dependants.eval_rollouts.map((table) =>
    database.prepare(`delete from ${table} where rollout_id in (select id from eval_rollouts where step = ?)`),
  );
  const deleteEvals = database.prepare('delete from eval_rollouts where step = ?');
  if (resumedAt !== undefined) deleteAfter(resumedAt);

  return {
    add(rollouts: readonly Rollout[], evalRollouts: readonly EvalRollout[]): void {
      transaction(() => {
        for (const rollout of rollouts) addRollout(rollout);
        deleteEvaluations(new Set(evalRollouts.map(({ step }) => step)));
        for (const rollout of evalRollouts) addEval(rollout);
      });
    },
    flush(): void {
      database.exec('pragma wal_checkpoint(passive)');
    },
    close(): void {
      try {
        database.exec('pragma wal_checkpoint(truncate)');
        leaveWal();
      } finally {
        database.close();
      }
    },
  };

  /** A database that nobody writes needs no log. A single file can also be read where nothing can be written. */
  function leaveWal(): void {
    try {
      database.exec('pragma busy_timeout = 0; pragma journal_mode = delete;');
    } catch {
      // Another process is reading it, so the empty log stays.
    }
  }

  function transaction(body: () => void): void {
    database.exec('begin immediate');
    try {
      body();
      database.exec('commit');
    } catch (error) {
      if (database.isTransaction) database.exec('rollback');
      throw error;
    }
  }

  function addRollout(r: Rollout): void {
    const { lastInsertRowid: id } = insertRollout.run(
      r.step,
      r.epoch,
      r.promptIndex,
      r.rolloutIndex,
      r.prompt,
      r.completion,
      r.reward,
      r.advantage,
    );
    for (const [name, value] of Object.entries(r.parts ?? {})) insertPart.run(id, name, value);
    if (r.facts) insertFacts.run(id, ...factValues(r.facts));
    if (r.tokens) {
      const t = r.tokens;
      insertTokens.run(
        id,
        blob(t.promptIds),
        blob(t.completionIds),
        blob(t.logprobs),
        t.refLogprobs ? blob(t.refLogprobs) : null,
        t.values ? blob(t.values) : null,
        t.advantages ? blob(t.advantages) : null,
      );
      if (t.sequence) insertSequence.run(id, blob(t.sequence.ids), blob(t.sequence.spans));
      if (t.sequence?.starts) insertStarts.run(id, blob(t.sequence.starts));
    }
    if (r.episode) addEpisode(id, r.episode, insertEpisode);
  }

  function addEval(r: EvalRollout): void {
    const { lastInsertRowid: id } = insertEval.run(r.step, r.epoch, r.promptIndex, r.prompt, r.completion, r.reward);
    for (const [name, value] of Object.entries(r.parts ?? {})) insertEvalPart.run(id, name, value);
    if (r.facts) insertEvalFacts.run(id, ...factValues(r.facts));
    if (r.episode) addEpisode(id, r.episode, insertEvalEpisode);
  }

  /** An evaluation repeated after an interrupt replaces the first one. */
  function deleteEvaluations(steps: ReadonlySet<number>): void {
    for (const step of steps) {
      for (const each of deleteOfEvals) each.run(step);
      deleteEvals.run(step);
    }
  }

  function deleteAfter(step: number): void {
    transaction(() => {
      for (const [rows, tables] of Object.entries(dependants)) {
        for (const table of tables)
          database
            .prepare(`delete from ${table} where rollout_id in (select id from ${rows} where step > ?)`)
            .run(step);
        database.prepare(`delete from ${rows} where step > ?`).run(step);
      }
    });
  }
}

function addEpisode(id: number | bigint, { end, turns }: StoredEpisode, insert: EpisodeInserts): void {
  insert.episode.run(id, end, turns.filter(({ role }) => role === 'assistant').length);
  for (const [place, { role, content, tokens, reward }] of turns.entries())
    insert.turn.run(id, place, role, content, tokens ?? null, reward ?? null);
}

const factValues = ({ task, ended, lengthTokens }: RolloutFacts) =>
  [task ?? null, Number(ended), lengthTokens] as const;

function blob(values: Int32Array | Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
