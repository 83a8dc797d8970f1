/** Programs in a process of their own, for tests of what would end or fill up the test's own process. */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { packageRoot } from './engine/native.ts';

/** .ts here, .js in the bundle, which contains these tests compiled. */
export const extension = import.meta.filename.slice(-3);

/** Runs a program of the repository, given by its path without the extension. */
export function runFile(path: string, ...args: string[]): SpawnSyncReturns<string> {
  return start([`${path}${extension}`, ...args]);
}

/** Runs a program given as source text, which imports from './src/…'. */
export function runProgram(program: string, ...flags: string[]): SpawnSyncReturns<string> {
  return start([
    ...flags,
    '--input-type=module',
    '-e',
    program.replaceAll(/'(\.\/src\/[^']+)\.ts'/g, `'$1${extension}'`),
  ]);
}

function start(args: string[]): SpawnSyncReturns<string> {
  const result = spawnSync(process.execPath, ['--no-warnings', ...args], {
    cwd: packageRoot,
    encoding: 'utf8',
    timeout: 280_000,
    env: childEnvironment(),
  });
  // AddressSanitizer prints a line for each allocation that is too large, and the tests make such allocations.
  const stderr = result.stderr.replaceAll(/^==\d+==WARNING: AddressSanitizer failed to allocate .*\n/gm, '');
  return { ...result, stderr };
}

/**
 * Under AddressSanitizer (`npm run sanitize`) freed memory is held back to catch later uses, by default 256 MB of it.
 * That would count as growth in a test of resident memory, so these short programs hold back 1 MB.
 */
function childEnvironment(): NodeJS.ProcessEnv {
  const options = process.env.ASAN_OPTIONS;
  return options === undefined ? process.env : { ...process.env, ASAN_OPTIONS: `${options}:quarantine_size_mb=1` };
}
