/**
 * The table of rollouts: filters, full text, sorting and paging as SQL over the index; the texts of one page come from
 * the database itself.
 */
import type { RolloutQuery, RolloutRow, RolloutSort, RolloutsAnswer } from '../api/rollouts.ts';
import { type Side, tablesOf } from './index-schema.ts';
import type { RolloutIndex } from './rollout-index.ts';

/** Characters of a prompt and of a response in a row of the table. */
const shownChars = 300;

type Value = string | number;

export function queryRollouts(index: RolloutIndex, query: RolloutQuery): RolloutsAnswer {
  const side: Side = query.eval ? 'eval' : 'train';
  const { offset = 0, limit = 50 } = query;
  const { ids, total } = plain(index, query, side) ?? filtered(index, query, side);
  return {
    total: total(),
    rows: rowsOf(index, side, ids(offset, limit)),
    lengthUnit: lengthUnit(index, side),
    tasks: index.state.tasks,
    has: whatIsKnown(index, side),
    indexed: index.indexed(side),
  };
}

interface Found {
  ids(offset: number, limit: number): number[];
  total(): number;
}

/** Without filters but the step, in the order of the rows: the database answers at once, however far the index is. */
function plain(index: RolloutIndex, query: RolloutQuery, side: Side): Found | undefined {
  const { step, from, to, eval: _, sort = 'id', dir = 'asc', offset: __, limit: ___, ...filters } = query;
  if (sort !== 'id' && sort !== 'step') return undefined;
  if (Object.values(filters).some((value) => value !== undefined && value !== '')) return undefined;
  const { source } = tablesOf(side);
  const { where, values } = conditions([stepCondition(query, 'step')]);
  return {
    ids: (offset, limit) =>
      numbers(
        index,
        `select id from source.${source} ${where} order by ${sort === 'step' ? `step ${dir}, ` : ''}id ${dir} limit ${limit} offset ${offset}`,
        values,
      ),
    total: () => count(index, `select count(*) as id from source.${source} ${where}`, values),
  };
}

const columns: Record<RolloutSort, string> = {
  id: 'r.id',
  step: 'r.step',
  reward: 'r.reward',
  advantage: 'r.advantage',
  length: 'r.length',
  kl: 'r.kl',
  prompt: 'r.prompt_index',
};

function filtered(index: RolloutIndex, query: RolloutQuery, side: Side): Found {
  const { rows, words } = tablesOf(side);
  const { sort = 'id', dir = 'asc', q } = query;
  const match = q === undefined ? undefined : matchOf(q);
  const { where, values } = conditions([
    match === undefined ? undefined : [`w.${words} match ?`, match],
    stepCondition(query, 'r.step'),
    compared('r.reward >= ?', query.minReward),
    compared('r.reward <= ?', query.maxReward),
    compared('r.length >= ?', query.minLength),
    compared('r.length <= ?', query.maxLength),
    compared('r.prompt_index = ?', query.prompt),
    compared('r.ended = ?', query.ending === undefined ? undefined : Number(query.ending === 'ended')),
    compared('r.correct = ?', query.correct === undefined ? undefined : Number(query.correct)),
    compared('r.task = ?', query.task),
  ]);
  const column = columns[sort];
  if (match !== undefined && where === `where w.${words} match ?` && sort === 'id')
    return {
      // The words alone answer it.
      ids: (offset, limit) =>
        numbers(
          index,
          `select rowid as id from ${words} w ${where} order by rowid ${dir} limit ${limit} offset ${offset}`,
          values,
        ),
      total: () => count(index, `select count(*) as id from ${words} w ${where}`, values),
    };
  const from = match === undefined ? `${rows} r` : `${words} w join ${rows} r on r.id = w.rowid`;
  return {
    ids: (offset, limit) =>
      numbers(
        index,
        `select r.id as id from ${from} ${where} order by ${column} ${dir}${column === 'r.id' ? '' : `, r.id ${dir}`} limit ${limit} offset ${offset}`,
        values,
      ),
    total: () => count(index, `select count(*) as id from ${from} ${where}`, values),
  };
}

type Condition = [sql: string, ...values: Value[]] | undefined;

const compared = (sql: string, value: Value | undefined): Condition => (value === undefined ? undefined : [sql, value]);

function stepCondition({ step, from, to }: RolloutQuery, column: string): Condition {
  if (step !== undefined) return [`${column} = ?`, step];
  if (from === undefined && to === undefined) return undefined;
  return [`${column} between ? and ?`, from ?? 0, to ?? Number.MAX_SAFE_INTEGER];
}

function conditions(list: readonly Condition[]): { where: string; values: Value[] } {
  const given = list.filter((each) => each !== undefined);
  const where = given.length === 0 ? '' : `where ${given.map(([sql]) => sql).join(' and ')}`;
  return { where, values: given.flatMap(([, ...values]) => values) };
}

/**
 * Words as the full-text index takes them: each quoted, so that its operators are plain text; `word*` and "phrases" mean
 * what they do elsewhere.
 */
export function matchOf(text: string): string | undefined {
  const parts = [...text.matchAll(/"([^"]*)"|(\S+)/g)].flatMap(([, phrase, word]) => {
    // A NUL would end the text for SQLite, inside the quotes.
    const plainText = (phrase ?? word ?? '').replaceAll(/["\0]/g, ' ').trim();
    const isPrefix = word?.endsWith('*') ?? false;
    const bare = isPrefix ? plainText.replace(/\*+$/, '') : plainText;
    // The tokenizer knows letters and digits only: a part without any would match nothing at all.
    return /[\p{L}\p{N}]/u.test(bare) ? [`"${bare}"${isPrefix ? '*' : ''}`] : [];
  });
  return parts.length === 0 ? undefined : parts.join(' ');
}

function numbers(index: RolloutIndex, sql: string, values: readonly Value[]): number[] {
  return index.database
    .prepare(sql)
    .all(...values)
    .map(({ id }) => Number(id));
}

/** Totals are asked for again with every page: they are remembered until rows are added. */
const totals = new WeakMap<RolloutIndex, { at: string; known: Map<string, number> }>();

function count(index: RolloutIndex, sql: string, values: readonly Value[]): number {
  const at = JSON.stringify(index.state);
  let kept = totals.get(index);
  if (kept?.at !== at) {
    kept = { at, known: new Map() };
    totals.set(index, kept);
  }
  const key = JSON.stringify([sql, values]);
  const total = kept.known.get(key) ?? (numbers(index, sql, values)[0] as number);
  kept.known.set(key, total);
  return total;
}

/** Rows of the table by their ids, in their order. */
export function rowsOf(index: RolloutIndex, side: Side, ids: readonly number[]): RolloutRow[] {
  const { source, facts, parts } = tablesOf(side);
  const has = tablesIn(index);
  const list = ids.map(Math.trunc).join(',');
  const own = side === 'train' ? 'r.rollout_index as rolloutIndex, r.advantage,' : '';
  const fact = has.has(facts);
  const tokens = side === 'train' && has.has('rollout_tokens');
  const found = index.database
    .prepare(
      `select r.id, r.step, r.epoch, r.prompt_index as promptIndex, ${own} r.reward, length(r.completion) as chars,
         substr(r.prompt, 1, ${shownChars}) as prompt, substr(r.completion, 1, ${shownChars}) as completion
         ${fact ? ', f.task, f.ended, f.length_tokens as lengthTokens' : ''}
         ${tokens ? ', length(t.completion_ids) / 4 as tokens, mean_kl(t.logprobs, t.ref_logprobs) as kl' : ''}
       from source.${source} r
       ${fact ? `left join source.${facts} f on f.rollout_id = r.id` : ''}
       ${tokens ? 'left join source.rollout_tokens t on t.rollout_id = r.id' : ''}
       where r.id in (${list})`,
    )
    .all();
  const byId = new Map(found.map((row) => [Number(row.id), row]));
  const partsById = partsOf(index, `source.${parts}`, list);
  return ids.flatMap((id) => {
    const row = byId.get(id);
    return row === undefined ? [] : [rowOf(row, partsById.get(id) ?? {})];
  });
}

function partsOf(index: RolloutIndex, table: string, list: string): Map<number, Record<string, number>> {
  const all = new Map<number, Record<string, number>>();
  const rows = index.database.prepare(
    `select rollout_id as id, name, value from ${table} where rollout_id in (${list})`,
  );
  for (const { id, name, value } of rows.all()) {
    const parts = all.get(Number(id)) ?? {};
    parts[String(name)] = Number(value);
    all.set(Number(id), parts);
  }
  return all;
}

function rowOf(row: Record<string, unknown>, { correct, ...parts }: Record<string, number>): RolloutRow {
  const number = (value: unknown) => (value === null || value === undefined ? null : Number(value));
  return {
    id: Number(row.id),
    step: Number(row.step),
    epoch: Number(row.epoch),
    promptIndex: Number(row.promptIndex),
    ...(row.rolloutIndex === undefined ? {} : { rolloutIndex: Number(row.rolloutIndex) }),
    prompt: String(row.prompt),
    completion: String(row.completion),
    reward: number(row.reward),
    ...(row.advantage === undefined ? {} : { advantage: number(row.advantage) }),
    length: Number(row.lengthTokens ?? row.tokens ?? row.chars),
    ...(typeof row.kl === 'number' ? { kl: row.kl } : {}),
    ...(correct === undefined ? {} : { correct: correct === 1 }),
    ...(typeof row.ended === 'number' ? { ending: row.ended === 1 ? 'ended' : 'cut' } : {}),
    ...(typeof row.task === 'string' ? { task: row.task } : {}),
    parts,
  };
}

/** Tables that the database has: those of earlier versions lack some. */
function tablesIn(index: RolloutIndex): Set<string> {
  const rows = index.database.prepare("select name from source.sqlite_master where type = 'table'").all();
  return new Set(rows.map(({ name }) => String(name)));
}

const isThere = (index: RolloutIndex, sql: string) => index.database.prepare(`${sql} limit 1`).get() !== undefined;

function lengthUnit(index: RolloutIndex, side: Side): RolloutsAnswer['lengthUnit'] {
  const { facts } = tablesOf(side);
  const has = tablesIn(index);
  if (has.has(facts) && isThere(index, `select 1 from source.${facts}`)) return 'tokens';
  return side === 'train' && isThere(index, 'select 1 from source.rollout_tokens') ? 'tokens' : 'characters';
}

function whatIsKnown(index: RolloutIndex, side: Side): RolloutsAnswer['has'] {
  const { facts, parts, source } = tablesOf(side);
  const first = `(select min(id) from source.${source})`;
  return {
    correct: isThere(index, `select 1 from source.${parts} where rollout_id = ${first} and name = 'correct'`),
    ending: tablesIn(index).has(facts) && isThere(index, `select 1 from source.${facts}`),
    tokens: side === 'train' && isThere(index, 'select 1 from source.rollout_tokens'),
    kl:
      side === 'train' &&
      isThere(index, `select 1 from source.rollout_tokens where rollout_id = ${first} and ref_logprobs is not null`),
  };
}
