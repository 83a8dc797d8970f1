/** Routes of rollouts: the table, one rollout, one prompt over time, the steps, and a step under another algorithm. */
import { realpathSync } from 'node:fs';
import { z } from 'zod';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { openRollouts, openRun } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { RolloutDetail, RolloutQuery, RolloutSort, StepsAnswer, WhatIfRequest } from '../api/rollouts.ts';
import type { Above } from '../commands/verbs.ts';
import { type Asked, get, parsed, post, type Route } from '../http/router.ts';
import type { Catalogue } from '../runs/catalogue.ts';
import { numberOf } from '../runs/routes.ts';
import { type Side, tablesOf } from './index-schema.ts';
import { promptHistory, stepSummaries } from './over-time.ts';
import { queryRollouts, rowsOf } from './query.ts';
import type { RolloutIndex, RolloutIndexes } from './rollout-index.ts';
import type { TokenView } from './tokens.ts';

export interface RolloutParts {
  catalogue: Catalogue;
  indexes: RolloutIndexes;
  view: TokenView;
  above: Above;
}

export function rolloutRoutes({ catalogue, indexes, view, above }: RolloutParts): Route[] {
  const runOf = ({ params }: Asked) => catalogue.find(params.id as string);
  const indexOf = (asked: Asked) => indexes.of(databaseOf(catalogue, runOf(asked)));
  const sideOf = ({ query }: Asked): Side => (isYes(query.get('eval')) ? 'eval' : 'train');
  return [
    get('/api/runs/:id/rollouts', async (asked) => queryRollouts(await indexOf(asked), queryOf(asked.query))),
    get('/api/runs/:id/rollouts/:rollout', async (asked) =>
      detail(runOf(asked), await indexOf(asked), sideOf(asked), view, asked),
    ),
    get('/api/runs/:id/prompts/:prompt', async (asked) =>
      promptHistory(await indexOf(asked), sideOf(asked), wholeNumber(asked.params.prompt)),
    ),
    get(
      '/api/runs/:id/steps',
      async (asked): Promise<StepsAnswer> => ({
        steps: stepSummaries(await indexOf(asked), sideOf(asked)),
      }),
    ),
    post('/api/runs/:id/whatif', (asked) => whatIf(runOf(asked), above, asked.body)),
  ];
}

/** The database may lie elsewhere (--rollouts-dir), but not outside of the studio's folder. */
function databaseOf(catalogue: Catalogue, run: RunEntry): string {
  const path = openRun(run.path).rolloutsPath;
  if (path === undefined)
    throw new ApiError(404, `${run.name} stored no rollouts. Policy runs do, unless --no-save-rollouts is given.`, {
      code: 'not_found',
    });
  if (!catalogue.root.holds(realpathSync(path)))
    throw new ApiError(404, `The rollouts of ${run.name} lie outside of the studio's folder.`, { code: 'not_found' });
  return path;
}

const sorts: readonly RolloutSort[] = ['id', 'step', 'reward', 'advantage', 'kl', 'length', 'prompt'];
const isYes = (text: string | null) => text === '1' || text === 'true';

export function queryOf(query: URLSearchParams): RolloutQuery {
  const text = (name: string) => query.get(name) || undefined;
  const ending = text('ending');
  const correct = text('correct');
  return {
    step: numberOf(query, 'step'),
    from: numberOf(query, 'from'),
    to: numberOf(query, 'to'),
    minReward: numberOf(query, 'minReward'),
    maxReward: numberOf(query, 'maxReward'),
    minLength: numberOf(query, 'minLength'),
    maxLength: numberOf(query, 'maxLength'),
    q: text('q')?.slice(0, 500),
    task: text('task'),
    prompt: numberOf(query, 'prompt'),
    ending: ending === 'ended' || ending === 'cut' ? ending : undefined,
    correct: correct === undefined ? undefined : isYes(correct),
    sort: sorts.find((each) => each === query.get('sort')) ?? 'id',
    dir: query.get('dir') === 'desc' ? 'desc' : 'asc',
    offset: Math.trunc(numberOf(query, 'offset', 0, Number.MAX_SAFE_INTEGER) ?? 0),
    limit: Math.trunc(numberOf(query, 'limit', 1, 500) ?? 50),
    eval: isYes(query.get('eval')),
  };
}

function wholeNumber(text: string | undefined): number {
  if (text === undefined || !/^\d{1,15}$/.test(text))
    throw new ApiError(404, 'There is no such row.', { code: 'not_found' });
  return Number(text);
}

async function detail(
  run: RunEntry,
  index: RolloutIndex,
  side: Side,
  view: TokenView,
  { params, query }: Asked,
): Promise<RolloutDetail> {
  const id = wholeNumber(params.rollout);
  const [row] = rowsOf(index, side, [id]);
  if (row === undefined) throw new ApiError(404, `There is no rollout ${id}.`, { code: 'not_found' });
  const { source } = tablesOf(side);
  const one = (sql: string, ...values: number[]) => index.database.prepare(sql).get(...values);
  const texts = one(`select prompt, completion from source.${source} where id = ?`, id);
  const group = index.database
    .prepare(`select id from source.${source} where step = ? and prompt_index = ? order by id`)
    .all(row.step, row.promptIndex)
    .map((each) => Number(each.id));
  const [previous, next] = [
    one(`select max(id) as id from source.${source} where id < ?`, id)?.id,
    one(`select min(id) as id from source.${source} where id > ?`, id)?.id,
  ];
  using reader = openRollouts(index.path);
  const stored = side === 'train' ? reader.tokens(id) : undefined;
  const episode = side === 'train' ? reader.episode(id) : reader.evalEpisode(id);
  return {
    ...row,
    promptText: String(texts?.prompt ?? ''),
    completionText: String(texts?.completion ?? ''),
    ...(episode && { turns: [...episode.turns], episodeEnd: episode.end }),
    ...(stored === undefined ? {} : await view.tokens(run, stored, query.get('checkpoint') || undefined)),
    group,
    peers: rowsOf(index, side, group).map(({ id, reward, correct }) => ({
      id,
      reward,
      ...(correct === undefined ? {} : { correct }),
    })),
    ...(typeof previous === 'number' ? { previous } : {}),
    ...(typeof next === 'number' ? { next } : {}),
    checkpoints: run.snapshots.map(({ name }) => name),
  };
}

const whatIfRequest = z.object({
  step: z.number().int().min(1),
  algorithm: z.string().max(64).optional(),
  options: z.record(z.string().max(64), z.unknown()).optional(),
  checkpoint: z.string().max(64).optional(),
});

function whatIf(run: RunEntry, above: Above, body: unknown) {
  if (above.whatIf === undefined)
    throw new ApiError(501, 'This studio cannot recompute steps: it was not opened by `attune studio`.', {
      code: 'unavailable',
    });
  const request: WhatIfRequest = parsed(whatIfRequest, body);
  if (request.checkpoint !== undefined && !run.snapshots.some(({ name }) => name === request.checkpoint))
    throw new ApiError(404, `This run has no checkpoint "${request.checkpoint}".`, { code: 'not_found' });
  return above.whatIf(run.path, request);
}
