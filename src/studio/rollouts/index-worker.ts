/**
 * The thread that builds an index (index-schema.ts). It reads the database without ever writing to it, in pieces: first
 * the narrow rows, which make filters work, then the words.
 */
import { createHash } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as turn } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';
import { type IndexState, indexSql, indexVersion, type Side, sides, tablesOf } from './index-schema.ts';
import { addMeanKl } from './mean-kl.ts';

const { source, index } = workerData as { source: string; index: string };
/** Rows of one transaction: a reader of the index waits at most for one. */
const piece = 20_000;

const database = new DatabaseSync(index, { timeout: 30_000 });
database.exec('pragma journal_mode = wal; pragma synchronous = off; pragma cache_size = -65536;');
addMeanKl(database);
if (Number(database.prepare('pragma user_version').get()?.user_version) !== indexVersion) clear();
database.exec(indexSql);
database.exec(`attach '${pathToFileURL(source).href.replaceAll("'", "''")}?mode=ro' as source`);
const has = new Set(
  database
    .prepare("select name from source.sqlite_master where type = 'table'")
    .all()
    .map(({ name }) => String(name)),
);
const tasks = new Set<string>();

parentPort?.on('message', () => void build());

let building = false;
async function build(): Promise<void> {
  if (building) return;
  building = true;
  try {
    for (const side of sides) if (isReplaced(side)) clear();
    for (const side of sides) await fill(side, 'rows', addRows);
    for (const side of sides) await fill(side, 'words', addWords);
    tell(true);
  } catch (error) {
    parentPort?.postMessage({ error: (error as Error).message });
  }
  building = false;
}

async function fill(side: Side, table: 'rows' | 'words', add: typeof addRows): Promise<void> {
  for (let done = maxId(side, table), end = sourceMax(side); done < end; done += piece) {
    database.exec('begin immediate');
    add(side, done, Math.min(end, done + piece));
    if (table === 'rows') setState(`tail ${side}`, tailOf(side, maxId(side, 'rows')));
    setState(`${table} ${side}`, String(Math.min(end, done + piece)));
    database.exec('commit');
    tell(false);
    await turn();
  }
}

function addRows(side: Side, after: number, to: number): void {
  const { rows, source: from, facts, parts } = tablesOf(side);
  const advantage = side === 'train' ? 'r.advantage' : 'null';
  const tokens = side === 'train' && has.has('rollout_tokens');
  const fact = has.has(facts);
  const length = `coalesce(${[fact ? 'f.length_tokens' : '', tokens ? 'length(t.completion_ids) / 4' : '', 'length(r.completion)'].filter(Boolean).join(', ')})`;
  database
    .prepare(
      `insert into ${rows}(id, step, prompt_index, reward, advantage, length, correct, ended, task, kl)
       select r.id, r.step, r.prompt_index, r.reward, ${advantage}, ${fact || tokens ? length : 'length(r.completion)'},
         p.value, ${fact ? 'f.ended, f.task' : 'null, null'}, ${tokens ? 'mean_kl(t.logprobs, t.ref_logprobs)' : 'null'}
       from source.${from} r
       left join source.${parts} p on p.rollout_id = r.id and p.name = 'correct'
       ${fact ? `left join source.${facts} f on f.rollout_id = r.id` : ''}
       ${tokens ? 'left join source.rollout_tokens t on t.rollout_id = r.id' : ''}
       where r.id > ? and r.id <= ?`,
    )
    .run(after, to);
  const found = database.prepare(`select distinct task from ${rows} where id > ? and id <= ? and task is not null`);
  for (const { task } of found.all(after, to)) tasks.add(String(task));
  for (const known of JSON.parse(state('tasks') ?? '[]') as string[]) tasks.add(known);
  setState('tasks', JSON.stringify([...tasks].sort()));
}

function addWords(side: Side, after: number, to: number): void {
  const { words, source: from } = tablesOf(side);
  database
    .prepare(
      `insert into ${words}(rowid, prompt, completion) select id, prompt, completion from source.${from} where id > ? and id <= ?`,
    )
    .run(after, to);
}

/** A run that was resumed from an earlier step takes ids again: the last row that was indexed is then another. */
function isReplaced(side: Side): boolean {
  const last = maxId(side, 'rows');
  if (last === 0) return false;
  return sourceMax(side) < last || state(`tail ${side}`) !== tailOf(side, last);
}

function tailOf(side: Side, id: number): string {
  const row = database
    .prepare(
      `select step, prompt_index, reward, completion from source.${tablesOf(side).source} where id <= ? order by id desc limit 1`,
    )
    .get(id);
  return createHash('sha1')
    .update(JSON.stringify(row ?? null))
    .digest('hex');
}

const sourceMax = (side: Side) =>
  Number(database.prepare(`select max(id) as id from source.${tablesOf(side).source}`).get()?.id ?? 0);

/** Ids may have gaps at their end, so the place is remembered and not read from the table. */
const maxId = (side: Side, table: 'rows' | 'words') => Number(state(`${table} ${side}`) ?? 0);

function state(name: string): string | undefined {
  return database.prepare('select value from state where name = ?').get(name)?.value as string | undefined;
}

function setState(name: string, value: string): void {
  database.prepare('insert or replace into state(name, value) values (?, ?)').run(name, value);
}

function clear(): void {
  for (const side of sides) {
    const { rows, words } = tablesOf(side);
    database.exec(`drop table if exists ${rows}; drop table if exists ${words};`);
  }
  database.exec(`drop table if exists state; pragma user_version = ${indexVersion};`);
  database.exec(indexSql);
}

function tell(done: boolean): void {
  const bySide = (numberOf: (side: Side) => number) =>
    Object.fromEntries(sides.map((side) => [side, numberOf(side)])) as Record<Side, number>;
  const message: IndexState & { done: boolean } = {
    rows: bySide((side) => maxId(side, 'rows')),
    words: bySide((side) => maxId(side, 'words')),
    source: bySide(sourceMax),
    tasks: [...tasks],
    done,
  };
  parentPort?.postMessage(message);
}
