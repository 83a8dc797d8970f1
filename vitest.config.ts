import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import LongestFirst from './tests/longest-first.ts';

const found = (patterns: string[]) => globSync(patterns, { cwd: import.meta.dirname });
const texts = new Map<string, string>();
const reads = (file: string, pattern: RegExp): boolean => {
  const text = texts.get(file) ?? readFileSync(join(import.meta.dirname, file), 'utf8');
  texts.set(file, text);
  return pattern.test(text);
};

/** Whoever replaces modules does so for its whole process. */
const mocks = /vi\.(mock|doMock|resetModules)\b/;
/** Tests that look at their process as a whole have one of their own: at its live tensors, memory, threads, modules or folder. */
const whole = /liveTensors|memoryUsage|setThreads|process\.chdir/;

/** Tests of functions that leave nothing behind in their process: they share one, which loads the engine once (0.8 s). */
const plain = ['algorithms', 'data', 'evaluate', 'learn', 'models', 'nn', 'rollouts', 'tasks', 'text'];
const shared = found(
  [...plain, 'runs/config', 'runs/metrics', 'studio/commands']
    .map((folder) => `src/${folder}/**/*.test.ts`)
    .concat('src/*.test.ts', 'studio/**/*.test.ts'),
).filter((file) => !reads(file, mocks));
const others = found(['src/**/*.test.ts', 'studio/**/*.test.ts', 'tests/**/*.test.ts']).filter(
  (file) => !shared.includes(file),
);
const onGpu = existsSync('/dev/nvidia0');
/** Those of a GPU, where there is one, are apart, too. */
const isApart = (file: string) => reads(file, mocks) || reads(file, whole) || (onGpu && file.startsWith('tests/cuda/'));

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'apart', include: others.filter(isApart) } },
      // All others share three processes, which saves most of a second for each file. Whole commands and trainings leave tensors to the
      // garbage collector, so they do not share with the plain ones, which may count them.
      { extends: true, test: { name: 'together', include: others.filter((file) => !isApart(file)), isolate: false } },
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
