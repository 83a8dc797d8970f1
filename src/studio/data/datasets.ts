/** Datasets: files below the studio's folder, and what the hub's cache holds. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { hubSettings } from '../../hub/settings.ts';
import { isRunFolder } from '../../runs/index.ts';
import type { DatasetRow } from '../api/data.ts';
import type { Root } from '../http/folder.ts';
import { shownHere } from '../http/shown.ts';

const dataFile = /\.(jsonl|json|csv|parquet)(\.gz)?$/;
/** Files that models and tools write, which are JSON and no data. */
const noData =
  /^(config|tokenizer|tokenizer_config|generation_config|special_tokens_map|vocab|package(-lock)?|tsconfig.*|manifest|adapter_config|train_config|.*\.index|tags|biome)\.json$/;
const deepest = 4;
const mostFiles = 1000;

export async function listDatasets(root: Root): Promise<DatasetRow[]> {
  const files = [...below(root.path, 0)].slice(0, mostFiles).map((path): DatasetRow => {
    const { size, mtimeMs } = statSync(path);
    const shown = root.shown(path);
    return {
      dataset: shownHere(path),
      name: shown,
      source: sourceOf(shown),
      bytes: size,
      modified: Math.round(mtimeMs),
    };
  });
  return [...files.sort((a, b) => b.modified - a.modified), ...(await cached())];
}

function sourceOf(shown: string): DatasetRow['source'] {
  if (/^(votes|thumbs)[\w.]*\.jsonl$/.test(shown)) return 'votes';
  return shown.startsWith('ratings/') ? 'ratings' : 'folder';
}

/** Runs and hidden folders are left out; links are not followed. */
function* below(folder: string, depth: number): Generator<string> {
  if (depth > deepest || isRunFolder(folder)) return;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
    if (entry.isDirectory()) yield* below(path, depth + 1);
    else if (entry.isFile() && dataFile.test(entry.name) && !noData.test(entry.name)) yield path;
  }
}

async function cached(): Promise<DatasetRow[]> {
  const { cacheDir } = await hubSettings();
  if (!existsSync(cacheDir)) return [];
  return readdirSync(cacheDir).flatMap((name): DatasetRow[] => {
    if (!name.startsWith('datasets--')) return [];
    const dataset = name.slice('datasets--'.length).replace('--', '/');
    const { mtimeMs } = statSync(join(cacheDir, name));
    return [{ dataset, name: dataset, source: 'hub', bytes: 0, modified: Math.round(mtimeMs) }];
  });
}
