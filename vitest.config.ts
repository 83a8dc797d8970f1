import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import LongestFirst from './tests/longest-first.ts';

/** Tests of functions that leave nothing behind in their process: they share one, which loads the engine once (0.8 s). */
const plain = ['algorithms', 'data', 'evaluate', 'learn', 'models', 'nn', 'rollouts', 'tasks', 'text'];
const shared = [...plain, 'runs/config', 'runs/metrics', 'studio/commands']
  .map((folder) => `src/${folder}/**/*.test.ts`)
  .concat('src/*.test.ts', 'studio/**/*.test.ts');
/**
 * Tests of whole commands and trainings share processes too, but not with those above: they leave tensors to the garbage
 * collector. Those that count live tensors themselves or replace modules stay apart.
 */
const folders = ['src/cli', 'src/dist', 'src/rewards', 'src/runs', 'src/trainers', 'src/workflows', 'tests/options'];
const together = folders
  .flatMap((folder) => globSync(`${folder}/**/*.test.ts`, { cwd: import.meta.dirname }))
  .filter((file) => !/liveTensors|vi\.mock/.test(readFileSync(join(import.meta.dirname, file), 'utf8')));
const all = ['src/**/*.test.ts', 'studio/**/*.test.ts', 'tests/**/*.test.ts'];

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'shared', include: shared, isolate: false } },
      { extends: true, test: { name: 'together', include: together, exclude: shared, isolate: false } },
      // One process per test file: native state (threads, RNG, live tensors) and the environment are not shared between them.
      { extends: true, test: { name: 'apart', include: all, exclude: [...shared, ...together] } },
    ],
    sequence: { sequencer: LongestFirst },
    setupFiles: ['./tests/support/reader.ts', './tests/support/equality.ts'],
    pool: 'forks',
    // One more than the two cores of the smallest machine: tests that watch processes or a browser wait a good part of their time.
    maxWorkers: 3,
    // Only a test that hangs may meet its limit: on a machine with too much to do, one that passes slowly passes.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // More threads in each worker would only wait for one another.
    env: { OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1' },
    reporters: ['default', './tests/closing-line.ts'],
  },
});
