/**
 * The stored curves of docs/learn: `npm run bench -- learn [--chapters 1,2] [--seeds 1,2,3] [--out attune-learn/recorded]`.
 * Each chapter's experiment is run with each seed; the outcome of one run is a file, and what is there is not run again, so that
 * several processes can share the work. Once all seeds of a chapter are there, its curves and its picture are written.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { consoleProgress } from '../src/cli/terminal/console.ts';
import { chapters } from '../src/learn/book.ts';
import type { Outcome } from '../src/learn/experiments/experiment.ts';
import { type Reference, referenceOf } from '../src/learn/reference.ts';
import { grid, lineChart, toPng } from '../src/runs/plots/plots.ts';
import { packageRoot } from '../src/tensor/engine/native.ts';
import type { Reading } from './run.ts';

interface Recorded {
  seed: number;
  seconds: number;
  outcome: Outcome;
}

const allSeeds = [1, 2, 3];

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const option = (name: string) => (args.includes(`--${name}`) ? args[args.indexOf(`--${name}`) + 1] : undefined);
  const numbers = option('chapters')?.split(',').map(Number);
  const seeds = option('seeds')?.split(',').map(Number) ?? allSeeds;
  const out = option('out') ?? join('attune-learn', 'recorded');
  mkdirSync(out, { recursive: true });
  const file = (chapter: number, seed: number) => join(out, `${chapter}-${seed}.json`);
  for (const { number, experiment } of chapters()) {
    if (numbers !== undefined && !numbers.includes(number)) continue;
    for (const seed of seeds) {
      if (existsSync(file(number, seed))) continue;
      const folder = join(out, `chapter-${number}-${seed}-${Date.now()}`);
      mkdirSync(folder, { recursive: true });
      const started = performance.now();
      const model = join(packageRoot, 'models', 'tiny');
      const outcome = await experiment.run({ folder, seed, model, print: console.log, progress: consoleProgress() });
      const seconds = Math.round((performance.now() - started) / 1000);
      writeFileSync(file(number, seed), JSON.stringify({ seed, seconds, outcome } satisfies Recorded));
      for (const { claim, holds, numbers: shown } of outcome.findings)
        console.log(`${number}/${seed} ${holds ? '✓' : '✗'} ${claim}: ${shown}`);
      yield { name: `chapter ${number}, seed ${seed}`, seconds };
    }
    if (allSeeds.every((seed) => existsSync(file(number, seed)))) {
      const runs = allSeeds.map((seed) => JSON.parse(readFileSync(file(number, seed), 'utf8')) as Recorded);
      await store(number, runs);
    }
  }
}

async function store(number: number, runs: readonly Recorded[]): Promise<void> {
  const reference = referenceOf(runs);
  const name = String(number).padStart(2, '0');
  const curves = join(packageRoot, 'docs', 'learn', 'curves');
  mkdirSync(curves, { recursive: true });
  writeFileSync(join(curves, `${name}.json`), `${JSON.stringify(reference)}\n`);
  writeFileSync(join(curves, `${name}.png`), await picture(reference));
}

/** All figures of a chapter, the spread over seeds as a band. */
function picture({ figures }: Reference): Promise<Uint8Array> {
  const charts = figures.map((figure) =>
    lineChart({
      ...figure,
      series: figure.curves.map(({ name, x, mean }) => ({ name, x, y: mean })),
      bands: Object.fromEntries(figure.curves.map((curve) => [curve.name, curve.spread])),
      smooth: false,
    }),
  );
  return toPng(grid(charts, { columns: Math.min(2, charts.length) }));
}
