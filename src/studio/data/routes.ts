/** Routes of datasets: the list, what explore says, examples, and ratings of pairs. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { explore } from '../../evaluate/explore.ts';
import { loadTokenizer } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { DataExample, RatingAnswer, RatingsAnswer } from '../api/data.ts';
import type { Job } from '../api/models.ts';
import type { Jobs } from '../commands/jobs.ts';
import type { ModelPlaces } from '../commands/places.ts';
import { get, parsed, post, type Route } from '../http/router.ts';
import { numberOf } from '../runs/routes.ts';
import { listDatasets } from './datasets.ts';
import { ExampleCache, queryExamples } from './examples.ts';
import { RatingFile } from './ratings.ts';

const named = z.object({ dataset: z.string().min(1).max(1000), split: z.string().min(1).max(100).optional() });
const exploreRequest = named.extend({
  maxRows: z.number().int().positive().optional(),
  model: z.string().min(1).max(1000).optional(),
});
const ratingRequest = named.extend({
  index: z.number().int().min(0),
  pair: z.string().max(64).optional(),
  vote: z.enum(['1', '2', '=', 'skip']),
  first: z.enum(['chosen', 'rejected']),
  note: z.string().max(10_000).optional(),
});

export interface DataParts {
  places: ModelPlaces;
  jobs: Jobs;
  /** The reward model that is loaded in the chat. */
  scorer: () => RewardScorer | undefined;
}

export function dataRoutes({ places, jobs, scorer }: DataParts): Route[] {
  const cache = new ExampleCache();
  const files = new Map<string, RatingFile>();
  const fileOf = (path: string, split: string | undefined) => {
    const key = JSON.stringify([path, split]);
    const file = files.get(key) ?? new RatingFile(places.root.path, path, split);
    files.set(key, file);
    return file;
  };
  const asked = (query: URLSearchParams) =>
    parsed(named, { dataset: query.get('dataset') ?? '', split: query.get('split') || undefined });

  async function rate(body: unknown): Promise<RatingAnswer> {
    const { dataset, split, index, pair, vote, first, note } = parsed(ratingRequest, body);
    const path = places.find(dataset);
    const { rows, shape } = await cache.of(path, split);
    const row = rows[index];
    if (shape !== 'preference') throw new ApiError(409, 'Only pairs can be rated.', { code: 'conflict' });
    if (row === undefined) throw new ApiError(404, `There is no pair ${index}.`, { code: 'not_found' });
    if (pair !== undefined && pair !== row.pair)
      throw new ApiError(409, 'The dataset has changed since this pair was shown.', { code: 'conflict' });
    const decided = vote === '1' || vote === '2';
    const agrees = decided ? (vote === '1') === (first === 'chosen') : undefined;
    const scores = decided ? await scoresOf(scorer(), row, first) : undefined;
    const modelAgrees = scores === undefined ? undefined : scores[0] > scores[1] === (vote === '1');
    const file = fileOf(path, split);
    const rating = file.add({
      index,
      ...(row.pair === undefined ? {} : { pair: row.pair }),
      vote,
      first,
      ...(agrees === undefined ? {} : { agrees }),
      ...(modelAgrees === undefined ? {} : { modelAgrees }),
      ...(note === undefined ? {} : { note }),
    });
    return {
      rating,
      tally: file.tally(rows),
      ...(scores === undefined ? {} : { scores }),
      ...(modelAgrees === undefined ? {} : { modelAgrees }),
    };
  }

  return [
    get('/api/data', async () => ({ datasets: await listDatasets(places.root) })),
    post('/api/data/explore', ({ body }) => startExplore(jobs, places, parsed(exploreRequest, body))),
    get('/api/data/examples', async ({ query }) => {
      const { dataset, split } = asked(query);
      const path = places.find(dataset);
      const examples = await cache.of(path, split);
      return queryExamples(examples, fileOf(path, split).fitted(examples.rows).ratings, {
        q: query.get('q')?.slice(0, 500),
        filter: query.get('filter') ?? undefined,
        offset: Math.trunc(numberOf(query, 'offset', 0) ?? 0),
        limit: Math.trunc(numberOf(query, 'limit', 1, 200) ?? 50),
      });
    }),
    get('/api/ratings', async ({ query }): Promise<RatingsAnswer> => {
      const { dataset, split } = asked(query);
      const path = places.find(dataset);
      const file = fileOf(path, split);
      const { rows } = await cache.of(path, split);
      const { ratings } = file.fitted(rows);
      const next = rows.find(({ index }) => !ratings.has(index))?.index;
      const guidelines = guidelinesOf(path, places);
      return {
        ratings: [...ratings.values()],
        tally: file.tally(rows),
        ...(guidelines === undefined ? {} : { guidelines }),
        ...(next === undefined ? {} : { next }),
      };
    }),
    post('/api/ratings', ({ body }) => rate(body)),
    post('/api/ratings/undo', async ({ body }) => {
      const { dataset, split } = parsed(named, body);
      const path = places.find(dataset);
      const file = fileOf(path, split);
      const { rows } = await cache.of(path, split);
      const undone = file.undo(rows);
      return { ...(undone === undefined ? {} : { undone }), tally: file.tally(rows) };
    }),
    post('/api/ratings/export', async ({ body }) => {
      const { dataset, split } = parsed(named, body);
      const path = places.find(dataset);
      const file = fileOf(path, split);
      const { rows } = await cache.of(path, split);
      const { rated, lost } = file.tally(rows);
      if (rated === 0 && lost === undefined)
        throw new ApiError(409, 'No pair has a vote that decides anything yet.', { code: 'conflict' });
      if (rated === 0)
        throw new ApiError(409, `No rated pair is still in the dataset: ${lost} no longer fit.`, { code: 'conflict' });
      return file.export(rows);
    }),
  ];
}

/** Scores of the pair in the order in which it was shown. */
async function scoresOf(
  scorer: RewardScorer | undefined,
  { prompt, responses }: DataExample,
  first: 'chosen' | 'rejected',
): Promise<[number, number] | undefined> {
  const [chosen, rejected] = responses;
  if (scorer === undefined || chosen === undefined || rejected === undefined) return undefined;
  const shown = first === 'chosen' ? [chosen, rejected] : [rejected, chosen];
  const scores = await scorer.score(shown.map(({ text }) => ({ prompt, response: text })));
  return scores as [number, number];
}

function startExplore(jobs: Jobs, places: ModelPlaces, request: z.output<typeof exploreRequest>): Job {
  const { dataset, split, maxRows, model } = request;
  const path = places.find(dataset);
  const tokens = model === undefined ? undefined : places.find(model);
  const handle = jobs.begin({ kind: 'explore', title: dataset });
  let done = 0;
  const progress = {
    start: (label: string, total?: number) => ({
      advance: (amount = 1) => {
        done += amount;
        if (done % 1000 === 0) handle.progress(label, done, total);
      },
      done: () => {},
    }),
  };
  const work = async () =>
    explore(path, {
      ...(split === undefined ? {} : { split }),
      ...(maxRows === undefined ? {} : { maxSamples: maxRows }),
      ...(tokens === undefined ? {} : { tokenizer: await loadTokenizer(tokens) }),
      progress,
    });
  work().then(
    (result) => handle.end('done', { result }),
    (error) => handle.end('failed', { error: (error as Error).message }),
  );
  return handle.job;
}

/** What raters go by: GUIDELINES.md beside the dataset, unless it is a link that leads outside. */
function guidelinesOf(path: string, places: ModelPlaces): string | undefined {
  if (!existsSync(path)) return undefined;
  const folder = statSync(path).isDirectory() ? path : dirname(path);
  const file = join(folder, 'GUIDELINES.md');
  return existsSync(file) && places.allows(file) && statSync(file).isFile()
    ? readFileSync(file, 'utf8').slice(0, 100_000)
    : undefined;
}
