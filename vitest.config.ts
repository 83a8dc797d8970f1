import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'studio/**/*.test.ts', 'tests/**/*.test.ts'],
    // One process per test file: native state (threads, RNG, live tensors) is not shared between them.
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Two workers on two cores: more threads in each would only wait for one another.
    env: { OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1' },
    reporters: ['default', './tests/closing-line.ts'],
  },
});
