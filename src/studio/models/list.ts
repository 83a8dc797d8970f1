/** Models on this machine: folders, checkpoints and adapters of runs, quantised copies, and the hub's cache. */
import { existsSync, lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { hubSettings } from '../../hub/settings.ts';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { isRunFolder, readJson } from '../../runs/index.ts';
import type { ModelRow } from '../api/models.ts';
import type { ModelPlaces } from '../commands/places.ts';
import { shownHere } from '../http/shown.ts';
import type { Catalogue } from '../runs/catalogue.ts';

const deepest = 4;

export async function listModels(catalogue: Catalogue, places: ModelPlaces): Promise<ModelRow[]> {
  const seen = new Set<string>();
  const folders = places.folders
    .flatMap(({ path }) => [...modelsBelow(path, 0)])
    .filter((path) => !seen.has(path) && Boolean(seen.add(path)))
    .map((path) => modelRow(path, 'folder'));
  const runs = catalogue.all().flatMap((entry) => ofRun(catalogue, entry));
  return [...runs, ...folders, ...(await cached())].filter((row) => row !== undefined);
}

function ofRun(catalogue: Catalogue, entry: RunEntry): ModelRow[] {
  const runId = catalogue.idOf(entry);
  const found = entry.snapshots.flatMap(({ path, quantised, name }) => {
    const own = modelRow(path, 'run');
    const copies = quantised.map((each) => modelRow(join(path, each), 'run'));
    const of = (row: ModelRow | undefined, title: string): ModelRow[] =>
      row === undefined
        ? []
        : [
            {
              ...row,
              name: title,
              runId,
              kind: entry.kind === 'reward' && row.kind !== 'quantised' ? 'reward' : row.kind,
            },
          ];
    return [
      ...of(own, `${entry.name}/${name}`),
      ...copies.flatMap((copy, i) => of(copy, `${entry.name}/${name}/${quantised[i]}`)),
    ];
  });
  return found.map((row) => (row.kind === 'base' ? { ...row, kind: 'checkpoint' } : row));
}

/** Folders with a model's config and weights; run folders and links are passed over. */
function* modelsBelow(folder: string, depth: number): Generator<string> {
  if (depth > deepest || isRunFolder(folder) || !existsSync(folder)) return;
  const entries = readdirSync(folder, { withFileTypes: true });
  const names = entries.map(({ name }) => name);
  const isModel = names.includes('config.json') || names.includes('adapter_config.json');
  if (isModel && names.some((name) => name.endsWith('.safetensors'))) yield folder;
  for (const entry of entries)
    if (entry.isDirectory() && !entry.name.startsWith('.') && entry.name !== 'node_modules')
      yield* modelsBelow(join(folder, entry.name), depth + 1);
}

interface ModelConfig {
  architectures?: string[];
  model_type?: string;
  quantization_config?: { load_in_8bit?: boolean };
}

function modelRow(path: string, place: ModelRow['place']): ModelRow | undefined {
  const config = readJson<ModelConfig>(join(path, 'config.json'));
  const adapter = readJson<{ base_model_name_or_path?: string }>(join(path, 'adapter_config.json'));
  if (config === undefined && adapter === undefined) return undefined;
  const architecture = config?.architectures?.[0] ?? config?.model_type;
  const quantised = config?.quantization_config;
  const isReward = architecture?.endsWith('ForSequenceClassification') ?? false;
  return {
    model: shownHere(path),
    name: shownHere(path),
    place,
    kind: quantised !== undefined ? 'quantised' : adapter !== undefined ? 'adapter' : isReward ? 'reward' : 'base',
    ...(architecture === undefined ? {} : { architecture }),
    ...(adapter?.base_model_name_or_path === undefined ? {} : { base: adapter.base_model_name_or_path }),
    ...(quantised === undefined ? {} : { quantType: quantised.load_in_8bit ? 'int8' : 'int4' }),
    bytes: weightBytes(path),
    modified: Math.round(lstatSync(path).mtimeMs),
  };
}

/** Bytes of the weights; the hub's cache holds links to them. */
function weightBytes(folder: string): number {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.safetensors') && !name.startsWith('optimizer'))
    .reduce((sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0), 0);
}

async function cached(): Promise<(ModelRow | undefined)[]> {
  const { cacheDir } = await hubSettings();
  if (!existsSync(cacheDir)) return [];
  return readdirSync(cacheDir).flatMap((name) => {
    if (!name.startsWith('models--')) return [];
    const model = name.slice('models--'.length).replace('--', '/');
    const snapshots = join(cacheDir, name, 'snapshots');
    const newest = existsSync(snapshots) ? readdirSync(snapshots).at(-1) : undefined;
    if (newest === undefined) return [];
    const row = modelRow(realpathSync(join(snapshots, newest)), 'hub cache');
    // A snapshot without weights was only looked at.
    return row === undefined || row.bytes === 0 ? [] : [{ ...row, model, name: model }];
  });
}
