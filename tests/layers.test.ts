/** Nothing imports upward: reads the imports of every source file and holds them against the arrows of the design. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Each folder and what it may import, besides itself and the leaf files errors.ts and progress.ts. */
const allowed: Record<string, string[]> = {
  'src/tensor': [],
  'src/nn': ['src/tensor'],
  'src/text': [],
  'src/models': ['src/nn', 'src/tensor', 'src/text'],
  'src/data': ['src/text'],
  'src/tasks': [],
  'src/rewards': ['src/models', 'src/tasks', 'src/text'],
  'src/algorithms': ['src/tensor'],
  'src/runs': ['src/tensor', 'src/nn'],
  studio: ['src/runs', 'src/models', 'src/text'],
};
const below = Object.keys(allowed).filter((folder) => folder.startsWith('src/'));
allowed['src/trainers'] = below;
allowed['src/evaluate'] = below;
allowed['src/cli'] = [...below, 'src/trainers', 'src/evaluate', 'studio'];
// The package's front door exports what programs may use.
allowed['src/index.ts'] = [...below, 'src/trainers', 'src/evaluate'];

const leaves = ['src/errors.ts', 'src/progress.ts'];

/** The layer a path belongs to: its folder, or the file itself where it lies at the root of src/. */
function layerOf(path: string): string {
  const parts = path.split('/');
  return parts[0] === 'src' ? parts.slice(0, 2).join('/') : (parts[0] ?? '');
}

/** What is wrong with the relative imports of one file (`path` from the repository's root). */
function faults(path: string, text: string): string[] {
  const from = layerOf(path);
  const found: string[] = [];
  for (const [, specifier] of text.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)['"](\.[^'"]*)['"]/g)) {
    const target = relative('.', join(dirname(path), specifier ?? ''));
    const to = layerOf(target);
    if (to === from || leaves.includes(target)) continue;
    // What several tests share lies in tests/.
    if (to === 'tests' && path.endsWith('.test.ts')) continue;
    if (!allowed[from]?.includes(to)) found.push(`${path} imports ${target}: ${from} may not use ${to}`);
  }
  return found;
}

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

describe('layers', () => {
  const files = ['src', 'studio'].flatMap((folder) => {
    try {
      return sources(folder);
    } catch {
      return [];
    }
  });

  it('finds the sources', () => expect(files.length).toBeGreaterThan(5));

  it('import only downward', () => {
    expect(files.flatMap((path) => faults(path, readFileSync(path, 'utf8')))).toEqual([]);
  });

  it('every folder of src is known', () => {
    const layers = new Set(files.map(layerOf).filter((layer) => !leaves.includes(layer)));
    expect([...layers].filter((layer) => !(layer in allowed))).toEqual([]);
  });

  it.each([
    ["import { x } from '../trainers/loop.ts';", 'src/models/qwen.ts'],
    ["import type { T } from '../../nn/module.ts';", 'src/tensor/deep/op.ts'],
    ["export * from '../data/shapes.ts';", 'src/text/tokenizer.ts'],
    ["const m = await import('../cli/main.ts');", 'src/nn/linear.ts'],
    ["import '../trainers/index.ts';", 'src/evaluate/accuracy.ts'],
    ["import { t } from '../src/trainers/sft.ts';", 'studio/server.ts'],
    ["import { t } from './tensor/index.ts';", 'src/errors.ts'],
    ["import { toy } from '../../tests/loop/toy.ts';", 'src/trainers/loop.ts'],
  ])('would see %s in %s', (text, path) => expect(faults(path, text)).toHaveLength(1));

  it.each([
    ["import { x } from './loop.ts';", 'src/models/qwen.ts'],
    ["import { UserError } from '../errors.ts';", 'src/tensor/dtype.ts'],
    ["import { Linear } from '../nn/index.ts';", 'src/models/qwen.ts'],
    ["import { z } from 'zod';", 'src/text/chat.ts'],
    ["import { toy } from '../../tests/loop/toy.ts';", 'src/trainers/loop.test.ts'],
  ])('allows %s in %s', (text, path) => expect(faults(path, text)).toEqual([]));
});
