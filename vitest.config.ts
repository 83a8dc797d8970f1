import { defineConfig } from 'vitest/config';

/** Tests of functions that leave nothing behind in their process: they share one, which loads the engine once (0.8 s). */
const plain = ['algorithms', 'data', 'evaluate', 'learn', 'models', 'nn', 'rollouts', 'tasks', 'text'];
const shared = [...plain, 'runs/config', 'runs/metrics', 'studio/commands']
  .map((folder) => `src/${folder}/**/*.test.ts`)
  .concat('src/*.test.ts');
const all = ['src/**/*.test.ts', 'studio/**/*.test.ts', 'tests/**/*.test.ts'];

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'shared', include: [...shared, 'studio/**/*.test.ts'], isolate: false } },
      // One process per test file: native state (threads, RNG, live tensors) and the environment are not shared between them.
      { extends: true, test: { name: 'apart', include: all, exclude: [...shared, 'studio/**/*.test.ts'] } },
    ],
    setupFiles: ['./tests/support/reader.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Two workers on two cores: more threads in each would only wait for one another.
    env: { OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1' },
    reporters: ['default', './tests/closing-line.ts'],
  },
});
