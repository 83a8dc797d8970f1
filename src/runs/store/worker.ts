/** The thread that owns the writing side of `rollouts.db`; see rollouts.ts. */
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import {
  type EvalRollout,
  type Rollout,
  type RolloutFacts,
  type RolloutReply,
  type RolloutRequest,
  schemaSql,
} from './schema.ts';

const { path, resumedAt } = workerData as { path: string; resumedAt?: number };
const database = new DatabaseSync(path, { timeout: 30_000 });
database.exec('pragma journal_mode = wal; pragma synchronous = normal;');
database.exec(schemaSql);
if (resumedAt !== undefined) deleteAfter(resumedAt);

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
const deleteEvalParts = database.prepare(
  'delete from eval_reward_parts where rollout_id in (select id from eval_rollouts where step = ?)',
);
const deleteEvalFacts = database.prepare(
  'delete from eval_rollout_facts where rollout_id in (select id from eval_rollouts where step = ?)',
);
const deleteEvals = database.prepare('delete from eval_rollouts where step = ?');

parentPort?.on('message', (request: RolloutRequest) => {
  const reply: RolloutReply = { number: request.number };
  try {
    if (request.kind === 'rows')
      transaction(() => {
        for (const rollout of request.rollouts ?? []) addRollout(rollout);
        deleteEvaluations(new Set(request.evalRollouts?.map(({ step }) => step)));
        for (const rollout of request.evalRollouts ?? []) addEval(rollout);
      });
    else if (request.kind === 'flush') database.exec('pragma wal_checkpoint(passive)');
    else {
      database.exec('pragma wal_checkpoint(truncate)');
      leaveWal();
      database.close();
    }
  } catch (error) {
    reply.error = (error as Error).message;
  }
  parentPort?.postMessage(reply);
  if (request.kind === 'close') parentPort?.close();
});

/** A database that nobody writes needs no log: one file, which can be read also where nothing can be written. */
function leaveWal(): void {
  try {
    database.exec('pragma busy_timeout = 0; pragma journal_mode = delete;');
  } catch {
    // Another process reads it: the log stays, empty.
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
  }
}

function addEval(r: EvalRollout): void {
  const { lastInsertRowid: id } = insertEval.run(r.step, r.epoch, r.promptIndex, r.prompt, r.completion, r.reward);
  for (const [name, value] of Object.entries(r.parts ?? {})) insertEvalPart.run(id, name, value);
  if (r.facts) insertEvalFacts.run(id, ...factValues(r.facts));
}

const factValues = ({ task, ended, lengthTokens }: RolloutFacts) =>
  [task ?? null, Number(ended), lengthTokens] as const;

/** An evaluation that is made again, after an interrupt, takes the place of the first. */
function deleteEvaluations(steps: ReadonlySet<number>): void {
  for (const step of steps) {
    deleteEvalParts.run(step);
    deleteEvalFacts.run(step);
    deleteEvals.run(step);
  }
}

function deleteAfter(step: number): void {
  transaction(() => {
    for (const [rows, dependants] of [
      ['rollouts', ['reward_parts', 'rollout_facts', 'rollout_tokens']],
      ['eval_rollouts', ['eval_reward_parts', 'eval_rollout_facts']],
    ] as const) {
      for (const table of dependants) {
        database.prepare(`delete from ${table} where rollout_id in (select id from ${rows} where step > ?)`).run(step);
      }
      database.prepare(`delete from ${rows} where step > ?`).run(step);
    }
  });
}

function blob(values: Int32Array | Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
