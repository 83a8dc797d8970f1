/**
 * Does any call through `aten` end the process, or never come back? `npm run bench -- fuzz [--calls 1000000] [--seed 1]
 * [--rounds 100] [--only 'pool|conv']` calls every operator of the registry (or those that a regular expression names) with random
 * arguments (src/tensor/fuzz.test-support.ts), some rounds per process. An operator that ends its process, or one call of which
 * takes too long, is written down with the seed that does it, and the rest goes on without it. Exit code 1 where one did.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { libtorchVersion } from '../src/tensor/index.ts';
import { isLate, now } from './fuzz/clock.ts';
import type { Reading } from './run.ts';

interface Report {
  calls: number;
  succeeded: number;
  refused: string[];
  unexpected: string[];
  /** Tensors that are alive after the last call and were not before the first. */
  left: number;
  /** Resident memory after each round. */
  mebibytes: number[];
}

/** Processor time that one call may take. */
const LIMIT_SECONDS = 30;

/** Kills the process when one call takes too long. Each call writes another line into the log. */
class Watch {
  late = false;
  readonly #clock: NodeJS.Timeout;
  #call = '';
  #since = { processor: 0, wall: 0 };

  constructor(child: ChildProcess, log: string) {
    this.#clock = setInterval(() => {
      const call = existsSync(log) ? readFileSync(log, 'utf8') : '';
      const pid = child.pid as number;
      if (call !== this.#call) [this.#call, this.#since] = [call, now(pid)];
      if (!isLate(pid, this.#since, LIMIT_SECONDS)) return;
      this.late = true;
      child.kill('SIGKILL');
    }, 2000);
  }

  stop(): void {
    clearInterval(this.#clock);
  }
}

/** What one process found, or the operator, seed and number of calls at which it ended. */
async function round(
  seed: number,
  rounds: number,
  without: string[],
  only: string,
): Promise<Report | { crash: string; seed: number; calls: number; late: boolean }> {
  const folder = mkdtempSync(join(tmpdir(), 'attune-fuzz-'));
  const log = join(folder, 'log');
  const program = join(import.meta.dirname, `../src/tensor/fuzz.test-support${import.meta.filename.slice(-3)}`);
  try {
    const child = spawn(
      process.execPath,
      ['--no-warnings', program, String(seed), log, String(rounds), without.join(), only],
      {
        stdio: ['ignore', 'pipe', 'ignore'],
      },
    );
    const watch = new Watch(child, log);
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
    const status = await new Promise((resolve) => child.on('close', (code) => resolve(code)));
    watch.stop();
    if (status === 0) return JSON.parse(output) as Report;
    const [crash = '?', at = '0', calls = '0'] = readFileSync(log, 'utf8').trim().split(' ');
    return { crash, seed: Number(at), calls: Number(calls), late: watch.late };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      calls: { type: 'string', default: '1000000' },
      seed: { type: 'string', default: '1' },
      rounds: { type: 'string', default: '100' },
      only: { type: 'string', default: '' },
    },
  });
  const rounds = Number(values.rounds);
  const crashed: string[] = [];
  const unexpected = new Set<string>();
  let calls = 0;
  let succeeded = 0;
  for (let seed = Number(values.seed); calls < Number(values.calls); seed += rounds) {
    const found = await round(seed, rounds, crashed, values.only);
    calls += found.calls;
    if ('crash' in found) {
      crashed.push(found.crash);
      yield {
        name: found.crash,
        seed: found.seed,
        calls,
        result: found.late ? 'WAS NOT DONE IN TIME' : 'ENDED THE PROCESS',
      };
      process.exitCode = 1;
    } else {
      succeeded += found.succeeded;
      if (found.left !== 0) unexpected.add(`${found.left} tensors left`);
      for (const each of found.unexpected) unexpected.add(each);
      const [middle, last] = [found.mebibytes.at(rounds >> 1), found.mebibytes.at(-1)] as [number, number];
      const memory = `${middle} in the middle, ${last} at the end`;
      yield {
        name: `seeds from ${seed}`,
        calls,
        succeeded,
        unexpected: unexpected.size,
        mebibytes: memory,
        result: 'ok',
      };
    }
  }
  for (const each of unexpected) {
    process.exitCode = 1;
    yield { name: each, result: 'UNEXPECTED' };
  }
  yield { name: `libtorch ${libtorchVersion().join('.')}`, calls, succeeded, crashed: crashed.length };
}
