import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import LongestFirst from './tests/longest-first.ts';

/** Tests of functions that leave nothing behind in their process: they share one, which loads the engine once (0.8 s). */
const plain = ['algorithms', 'data', 'evaluate', 'learn', 'models', 'nn', 'rollouts', 'tasks', 'text'];
const shared = [...plain, 'runs/config', 'runs/metrics', 'studio/commands']
  .map((folder) => `src/${folder}/**/*.test.ts`)
  .concat('src/*.test.ts', 'studio/**/*.test.ts');
const all = ['src/**/*.test.ts', 'studio/**/*.test.ts', 'tests/**/*.test.ts'];
/**
 * Tests that look at their process as a whole have one of their own: at its live tensors, memory, threads, modules or folder; and those
 * of a GPU, where there is one.
 */
const whole = /liveTensors|memoryUsage|setThreads|vi\.mock|process\.chdir/;
const apart = globSync(all, { cwd: import.meta.dirname }).filter(
  (file) =>
    whole.test(readFileSync(join(import.meta.dirname, file), 'utf8')) ||
    (file.startsWith('tests/cuda/') && existsSync('/dev/nvidia0')),
);

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'apart', include: apart, exclude: shared } },
      // All others share three processes, which saves most of a second for each file. Whole commands and trainings leave tensors to the
      // garbage collector, so they do not share with the plain ones, which may count them.
      { extends: true, test: { name: 'together', include: all, exclude: [...shared, ...apart], isolate: false } },
      { extends: true, test: { name: 'shared', include: shared, isolate: false } },
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
