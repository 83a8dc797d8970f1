/** Processes of `attune` that a soak starts, and may kill. */
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../src/tensor/engine/native.ts';

/** One thread, so that numbers cannot depend on the load; compiled sources are kept, so that a life is short. */
export const env = {
  ...process.env,
  ATTUNE_THREADS: '1',
  OMP_NUM_THREADS: '1',
  OPENBLAS_NUM_THREADS: '1',
  NODE_COMPILE_CACHE: join(tmpdir(), 'attune-soak-compiled'),
};

/** A task whose data `attune tasks generate` makes. */
export const task = 'spell_backward:1';

export interface Life {
  ended: boolean;
  killed: boolean;
  /** Whether its loop over steps had begun. */
  begun: boolean;
  /** From the start of its loop to its end. */
  seconds: number;
  errors: string;
}

/** When a life is ended: so many seconds after the process started, or after its loop began. */
export type Death = { afterStart: number } | { afterBegin: number };

/** One process, killed as `death` says. */
export function attune(args: string[], death?: Death): Promise<Life> {
  const child = spawn(process.execPath, [join(packageRoot, 'bin/attune.mjs'), ...args], { cwd: packageRoot, env });
  let errors = '';
  let begun: number | undefined;
  let timer: NodeJS.Timeout | undefined;
  const killAfter = (seconds: number) => {
    timer = setTimeout(() => child.kill('SIGKILL'), 1000 * seconds);
  };
  if (death !== undefined && 'afterStart' in death) killAfter(death.afterStart);
  child.stdout.resume();
  child.stderr.on('data', (text) => {
    errors = `${errors}${text}`.slice(-2000);
    if (begun !== undefined || !/^run .* steps$/m.test(errors)) return;
    begun = performance.now();
    if (death !== undefined && 'afterBegin' in death) killAfter(death.afterBegin);
  });
  return new Promise((resolve) => {
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      const seconds = begun === undefined ? 0 : (performance.now() - begun) / 1000;
      resolve({ ended: code === 0, killed: signal === 'SIGKILL', begun: begun !== undefined, seconds, errors });
    });
  });
}
