/** A run as one entry of a list: kind, progress and size on disk. */
import { closeSync, existsSync, fstatSync, lstatSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { readJson } from '../json-files.ts';
import { lockHolder } from '../lock.ts';

export type RunState = 'running' | 'finished' | 'interrupted' | 'failed' | 'crashed' | 'unknown';

export interface Snapshot {
  name: string;
  path: string;
  bytes: number;
  /** Quantised copies inside it, which are deleted with it. */
  quantised: string[];
}

export interface RunEntry {
  path: string;
  name: string;
  /** policy, reward, preference, sft, quantised, … */
  kind: string;
  /** The model that training started from, as named in the config. */
  model?: string;
  /** The base model: an adapter's base, or the original of a quantised copy. */
  base?: string;
  state: RunState;
  /** ISO 8601. */
  created: string;
  step: number;
  metric?: { name: string; value: number };
  bytes: number;
  snapshots: Snapshot[];
  rollouts: boolean;
  logDir?: string;
  tags: string[];
}

export const tagsFile = 'tags.json';

interface Info {
  command?: string;
  status?: RunState;
  created?: string;
  step?: number;
  logDir?: string;
  rollouts?: string;
}

/** Sort order: steps first, then the best and the final model, so that the last entry is the run's result. */
function place(name: string): number {
  if (name === 'final') return Number.MAX_VALUE;
  return name === 'best_model' ? Number.MAX_SAFE_INTEGER : Number(name.split('-')[1]);
}

export function readEntry(path: string): RunEntry {
  const info = readJson<Info>(join(path, 'run.json')) ?? {};
  const config = readJson<{ model?: string }>(join(path, 'config.json')) ?? {};
  const inside = readdirSync(path, { withFileTypes: true });
  const snapshots = inside
    .filter((entry) => entry.isDirectory() && /^((step|checkpoint)-\d+|final|best_model)$/.test(entry.name))
    .map(({ name }) => snapshotOf(join(path, name)))
    .sort((a, b) => place(a.name) - place(b.name));
  const metric = lastMetric(join(path, 'metrics.jsonl'));
  const base = baseOf(path, config.model);
  return {
    path,
    name: basename(path),
    kind: info.command?.replace(/^train /, '') ?? (basename(path).startsWith('quantized_') ? 'quantised' : 'unknown'),
    ...(typeof config.model === 'string' ? { model: config.model } : {}),
    ...(base === undefined ? {} : { base }),
    state: info.status ?? 'unknown',
    created: info.created ?? lstatSync(path).mtime.toISOString(),
    step: info.step ?? 0,
    ...(metric === undefined ? {} : { metric }),
    bytes: bytesBelow(path),
    snapshots,
    rollouts: info.rollouts !== undefined || existsSync(join(path, 'rollouts.db')),
    ...(info.logDir === undefined ? {} : { logDir: info.logDir }),
    tags: readJson<string[]>(join(path, tagsFile)) ?? [],
  };
}

/** A model's base, followed through all adapters in between. A folder that no longer exists counts as a base. */
function baseOf(path: string, model: string | undefined): string | undefined {
  const named = readJson<{ cwd?: string }>(join(path, 'run.json'))?.cwd ?? '.';
  let base = model ?? adapterBase(path) ?? originalOf(path);
  for (let depth = 0; base !== undefined && depth < 8; depth++) {
    const below = adapterBase(resolve(named, base)) ?? adapterBase(resolve(named, base, 'final'));
    if (below === undefined) return base;
    base = below;
  }
  return base;
}

const adapterBase = (folder: string) =>
  readJson<{ base_model_name_or_path?: string }>(join(folder, 'adapter_config.json'))?.base_model_name_or_path;

/** The checkpoint that contains a folder such as `quantized_int8`, from which it was made. */
function originalOf(path: string): string | undefined {
  if (!basename(path).startsWith('quantized_')) return undefined;
  return adapterBase(dirname(path)) ?? dirname(path);
}

/** A run whose state is "running" has crashed if no process writes it. */
export function liveState(entry: RunEntry): RunState {
  if (entry.state !== 'running') return entry.state;
  return lockHolder(entry.path)?.isLive ? 'running' : 'crashed';
}

function snapshotOf(path: string): Snapshot {
  const quantised = readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('quantized_'))
    .map(({ name }) => name);
  return { name: basename(path), path, bytes: bytesBelow(path), quantised };
}

/** Bytes of the files below. Links are neither counted nor followed. */
export function bytesBelow(path: string): number {
  let total = 0;
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inner = join(path, entry.name);
    if (entry.isDirectory()) total += bytesBelow(inner);
    else if (entry.isFile()) total += lstatSync(inner, { throwIfNoEntry: false })?.size ?? 0;
  }
  return total;
}

const tellingMetrics = [
  ...['eval/accuracy', 'eval/teacher_kl', 'eval/reward', 'eval/loss'],
  ...['train/accuracy', 'train/teacher_kl', 'train/reward', 'train/loss'],
];
const tailBytes = 64 << 10;

/** The newest value of the first metric found, read from the end of a possibly long file. */
function lastMetric(path: string): RunEntry['metric'] {
  const lines = tail(path).split('\n').reverse();
  const rows = lines.flatMap((line) => {
    try {
      return [JSON.parse(line) as Record<string, unknown>];
    } catch {
      return [];
    }
  });
  for (const name of tellingMetrics) {
    const value = rows.find((row) => typeof row?.[name] === 'number')?.[name];
    if (typeof value === 'number') return { name, value };
  }
  return undefined;
}

function tail(path: string): string {
  if (!existsSync(path)) return '';
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    if (size <= tailBytes) return readFileSync(path, 'utf8');
    const buffer = Buffer.alloc(tailBytes);
    readSync(file, buffer, 0, tailBytes, size - tailBytes);
    return buffer.toString('utf8');
  } finally {
    closeSync(file);
  }
}
