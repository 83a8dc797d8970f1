/** One run as a row of the list. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { openRun, readJson } from '../../runs/index.ts';
import type { RunRow } from '../api/runs.ts';
import { type Catalogue, updatedAt } from './catalogue.ts';
import { glimpse, sparkOf } from './glimpse.ts';
import type { SignalNotes } from './signal-notes.ts';

interface Config {
  algorithm?: string;
  loss?: string;
  type?: string;
  dataset?: string;
  task?: string;
  model?: string;
  seed?: number;
}

interface Info {
  totalSteps?: number;
  cwd?: string;
}

export function runRow(catalogue: Catalogue, entry: RunEntry, notes: SignalNotes): RunRow {
  const config = readJson<Config>(join(entry.path, 'config.json')) ?? {};
  const info = readJson<Info>(join(entry.path, 'run.json')) ?? {};
  const { last, rows, firstTime, lastTime } = glimpse(join(entry.path, 'metrics.jsonl'));
  const { metric } = entry;
  const spark = metric === undefined ? [] : sparkOf(rows, metric.name);
  const method = config.algorithm ?? config.loss ?? config.type;
  const best = bestOf(entry);
  const parent = parentOf(catalogue, entry, config.model, info.cwd);
  return {
    id: catalogue.idOf(entry),
    name: entry.name,
    path: catalogue.root.shown(entry.path),
    kind: entry.kind,
    ...optional({ method, model: entry.model, base: entry.base, dataset: config.dataset, task: config.task }),
    state: entry.state,
    step: Math.max(entry.step, Number(rows.at(-1)?.step ?? 0)),
    ...optional({ totalSteps: info.totalSteps, metric, best, parent }),
    last,
    bytes: entry.bytes,
    created: Date.parse(entry.created),
    updated: updatedAt(entry),
    ...(firstTime === undefined || lastTime === undefined ? {} : { seconds: (lastTime - firstTime) / 1000 }),
    checkpoints: entry.snapshots.length,
    hasRollouts: entry.rollouts,
    hasTokens: entry.rollouts && hasTokens(entry.path),
    tags: entry.tags,
    ...(spark.length > 1 ? { spark } : {}),
    ...optional({ warnings: notes.warnings(entry), seed: config.seed }),
    setup: setupOf(entry.kind, config),
  };
}

/** What does not change what is trained: the seed, names and places of output, what is logged and saved. */
const besides = /^(seed|run_name|output_dir|log_dir|rollouts_dir|report_to|resume_from|log_.*|save_.*)$/;

/** A hash of the settings that make the run: runs that share it differ in nothing but their seed. */
function setupOf(kind: string, config: object): string {
  const own = Object.entries(config)
    .filter(([name]) => !besides.test(name))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return createHash('sha1')
    .update(JSON.stringify([kind, own]))
    .digest('hex')
    .slice(0, 12);
}

/** Without the fields that are undefined. */
export function optional<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

/** The best evaluation, as the newest checkpoint's state names it. */
function bestOf({ snapshots }: RunEntry): RunRow['best'] {
  for (const { path } of snapshots.toReversed()) {
    const state = readJson<{ best?: { step?: number; value?: number; metric?: string } }>(
      join(path, 'trainer_state.json'),
    );
    const { step, value, metric } = state?.best ?? {};
    if (step !== undefined && value !== undefined && metric !== undefined) return { step, value, name: metric };
  }
  return undefined;
}

/** The run whose checkpoint this one began from. */
function parentOf(catalogue: Catalogue, entry: RunEntry, model: string | undefined, cwd = '.'): string | undefined {
  if (model === undefined) return undefined;
  const from = resolve(cwd, model);
  const found = catalogue.all().find(({ path }) => path !== entry.path && (from === path || dirname(from) === path));
  return found === undefined ? undefined : catalogue.idOf(found);
}

/** A run's token table does not come and go: the answer is remembered once it is yes. */
const withTokens = new Set<string>();

function hasTokens(folder: string): boolean {
  if (withTokens.has(folder)) return true;
  const path = openRun(folder).rolloutsPath;
  if (path === undefined || !existsSync(path)) return false;
  try {
    using database = new DatabaseSync(path, { readOnly: true, timeout: 200 });
    const found = database.prepare('select 1 from rollout_tokens limit 1').get() !== undefined;
    if (found) withTokens.add(folder);
    return found;
  } catch {
    return false;
  }
}
