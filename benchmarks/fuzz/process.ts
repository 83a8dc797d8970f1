/** Tries cases that the pool sends, one at a time, and says how each ended. A crash or a hang is for the pool to see. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AttuneError, UserError } from '../../src/errors.ts';
import { Random } from '../../src/random.ts';
import { cases } from './cases.ts';

export interface Trial {
  kind: string;
  seed: number;
}

export interface Outcome extends Trial {
  /** `fine`, `refused` (an error for people), or `fault`: any other error, or a rejection that nobody awaited. */
  result: 'fine' | 'refused' | 'fault';
  message?: string;
  residentMegabytes: number;
}

let stray: string | undefined;
process.on('unhandledRejection', (reason) => {
  stray = `unhandled rejection: ${(reason as Error)?.stack ?? reason}`;
});
process.on('disconnect', () => process.exit());
process.on('message', async (trial: Trial) => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-fuzz-'));
  let result: Outcome['result'] = 'fine';
  let message: string | undefined;
  try {
    await cases[trial.kind]?.(new Random('fuzz', trial.kind, trial.seed), folder);
  } catch (error) {
    const expected = error instanceof UserError || error instanceof AttuneError;
    result = expected ? 'refused' : 'fault';
    message = expected ? error.message : String((error as Error)?.stack ?? error);
  }
  rmSync(folder, { recursive: true, force: true });
  await new Promise(setImmediate);
  if (stray !== undefined) [result, message, stray] = ['fault', stray, undefined];
  const residentMegabytes = process.memoryUsage.rss() / 2 ** 20;
  process.send?.({ ...trial, result, message, residentMegabytes } satisfies Outcome);
});
process.send?.('ready');
