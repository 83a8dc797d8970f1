/** The filters of the table as the address holds them, and as the server is asked. */
import type { RolloutSort, RunRow } from '../../../src/studio/api.ts';
import type { Query } from '../../app/router.ts';
import type { Values } from '../../wire/requests.ts';

/** Names in the address that are filters; the rest say what is open. */
export const filterNames = [
  'step',
  'from',
  'to',
  'q',
  'minReward',
  'maxReward',
  'minLength',
  'maxLength',
  'ending',
  'task',
  'correct',
  'prompt',
] as const;

const sorts: readonly RolloutSort[] = ['id', 'step', 'reward', 'advantage', 'length', 'prompt'];

/** What to ask the server for, without offset and limit. `correct` is 1 or 0 on the wire. */
export function askedFor(query: Query): Values {
  const asked: Values = {};
  for (const name of filterNames) if (query[name]) asked[name] = query[name];
  // A single step is a range of its own.
  if (asked.step !== undefined) {
    delete asked.from;
    delete asked.to;
  }
  if (asked.correct !== undefined) asked.correct = asked.correct === 'yes' ? '1' : '0';
  const sort = sorts.find((name) => name === query.sort);
  if (sort) {
    asked.sort = sort;
    asked.dir = query.dir === 'asc' ? 'asc' : 'desc';
  }
  if (query.eval) asked.eval = true;
  return asked;
}

/** How many filters are set besides the search and the step, for the button that shows them. */
export const filtersSet = (query: Query) =>
  filterNames.filter((name) => name !== 'q' && name !== 'step' && query[name]).length;

/** What to say where there is no response: a run may have none at all, which no filter is to blame for. */
export function nothingWords(query: Query, isRunning: boolean): string {
  if (filterNames.some((name) => query[name])) return 'No response fits the filters.';
  const what = query.eval ? 'held-out responses' : 'responses';
  return isRunning ? `This run has not stored ${what} yet.` : `This run stored no ${what}.`;
}

/** The run that is shown where none is named: the one last written of those that took a step, else of all with rollouts. */
export function runToShow<Run extends Pick<RunRow, 'hasRollouts' | 'step' | 'updated'>>(
  runs: readonly Run[],
): Run | undefined {
  const [newest] = runs
    .filter(({ hasRollouts }) => hasRollouts)
    .toSorted((a, b) => Number(b.step > 0) - Number(a.step > 0) || b.updated - a.updated);
  return newest;
}

/** The address without any filter. */
export const noFilters = Object.fromEntries(filterNames.map((name) => [name, undefined]));

/** The step with rollouts that is nearest to one picked on a curve. */
export function nearestStep(steps: readonly number[], wanted: number): number | undefined {
  let best: number | undefined;
  for (const step of steps) if (best === undefined || Math.abs(step - wanted) < Math.abs(best - wanted)) best = step;
  return best;
}
