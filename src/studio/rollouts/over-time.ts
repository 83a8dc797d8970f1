/** Rollouts over the steps of a run: one summary per step, and one prompt at every step. */
import type { PromptHistory, StepSummary } from '../api/rollouts.ts';
import { type Side, tablesOf } from './index-schema.ts';
import { rowsOf } from './query.ts';
import type { RolloutIndex } from './rollout-index.ts';

const kept = new WeakMap<RolloutIndex, Map<string, StepSummary[]>>();

/** Per step: how many, their rewards, the share that is right. */
export function stepSummaries(index: RolloutIndex, side: Side): StepSummary[] {
  const complete = index.complete(side);
  const key = `${side} ${complete} ${JSON.stringify(index.state.rows)} ${JSON.stringify(index.state.source)}`;
  const known = kept.get(index)?.get(key);
  if (known !== undefined) return known;
  const { rows, source } = tablesOf(side);
  const [from, correct] = complete ? [rows, 'avg(correct)'] : [`source.${source}`, 'null'];
  const found = index.database
    .prepare(
      `select step, count(*) as count, avg(reward) as mean, min(reward) as min, max(reward) as max, ${correct} as accuracy
       from ${from} group by step order by step`,
    )
    .all();
  const number = (value: unknown) => (value === null ? null : Number(value));
  const summaries = found.map((row) => ({
    step: Number(row.step),
    count: Number(row.count),
    meanReward: number(row.mean),
    minReward: number(row.min),
    maxReward: number(row.max),
    ...(row.accuracy === null ? {} : { accuracy: Number(row.accuracy) }),
  }));
  kept.set(index, new Map([[key, summaries]]));
  return summaries;
}

/** Responses to one prompt, oldest first; at most `most`, evenly chosen over the steps. */
export function promptHistory(index: RolloutIndex, side: Side, promptIndex: number, most = 500): PromptHistory {
  const { rows, source } = tablesOf(side);
  const from = index.complete(side) ? rows : `source.${source}`;
  const ids = index.database
    .prepare(`select id from ${from} where prompt_index = ? order by step, id`)
    .all(promptIndex)
    .map(({ id }) => Number(id));
  const every = Math.max(1, Math.ceil(ids.length / most));
  const chosen = ids.filter((_, i) => i % every === 0);
  const texts = index.database.prepare(`select prompt, completion from source.${source} where id = ?`);
  const answers = rowsOf(index, side, chosen).map(({ id, step, reward, correct, length }) => ({
    id,
    step,
    reward,
    length,
    completion: String(texts.get(id)?.completion ?? ''),
    ...(correct === undefined ? {} : { correct }),
  }));
  const prompt = chosen[0] === undefined ? '' : String(texts.get(chosen[0])?.prompt ?? '');
  return { promptIndex, prompt, rows: answers };
}
