/**
 * Damaged inputs of every kind, in processes with a limit on processor time and memory:
 * `npm run bench -- fuzz-inputs [--cases 10000] [--kinds parquet,hub] [--seed 0] [--processes 1]`.
 * Each must be read or be refused with an error for people. Anything else is printed with its kind and seed, which make
 * the same input again (`--kinds hub --seed 17 --cases 1`).
 */
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cases } from './fuzz/cases.ts';
import { isLate, now } from './fuzz/clock.ts';
import type { Outcome, Trial } from './fuzz/process.ts';
import type { Reading } from './run.ts';

const LIMIT_SECONDS = 40;
const LIMIT_MEGABYTES = 1500;
const program = join(import.meta.dirname, `fuzz/process${import.meta.filename.slice(-3)}`);

interface Figures {
  cases: number;
  fine: number;
  refused: number;
  faults: number;
  crashes: number;
  hangs: number;
  slowestSeconds: number;
  mostMegabytes: number;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      cases: { type: 'string', default: '10000' },
      kinds: { type: 'string', default: Object.keys(cases).join(',') },
      seed: { type: 'string', default: '0' },
      processes: { type: 'string', default: '1' },
    },
  });
  const kinds = values.kinds.split(',');
  const trials: Trial[] = Array.from({ length: Number(values.cases) }, (_, i) => ({
    kind: kinds[i % kinds.length] as string,
    seed: Number(values.seed) + Math.floor(i / kinds.length),
  }));
  const figures = new Map<string, Figures>(kinds.map((kind) => [kind, blank()]));
  const queue = trials.values();
  await Promise.all(Array.from({ length: Number(values.processes) }, () => work(queue, figures)));
  for (const [kind, figure] of figures) yield { name: kind, ...figure };
}

function blank(): Figures {
  return { cases: 0, fine: 0, refused: 0, faults: 0, crashes: 0, hangs: 0, slowestSeconds: 0, mostMegabytes: 0 };
}

async function work(queue: Iterator<Trial>, figures: Map<string, Figures>): Promise<void> {
  let child: ChildProcess | undefined;
  for (let next = queue.next(); !next.done; next = queue.next()) {
    const trial = next.value;
    const figure = figures.get(trial.kind) as Figures;
    child ??= await started();
    const begin = now(child.pid as number);
    const outcome = await tried(child, trial);
    const seconds = Math.max(0, now(child.pid as number).processor - begin.processor);
    figure.cases++;
    figure.slowestSeconds = Math.max(figure.slowestSeconds, Math.round(seconds * 100) / 100);
    if (typeof outcome === 'string') {
      figure[outcome]++;
      report(trial, outcome);
      child.kill('SIGKILL');
      child = undefined;
      continue;
    }
    if (outcome.result === 'fault') {
      figure.faults++;
      report(trial, outcome.message ?? '');
    } else figure[outcome.result]++;
    const megabytes = Math.round(outcome.residentMegabytes);
    figure.mostMegabytes = Math.max(figure.mostMegabytes, megabytes);
    if (megabytes > LIMIT_MEGABYTES) {
      report(trial, `${megabytes} MB`);
      child.kill('SIGKILL');
      child = undefined;
    }
  }
  child?.kill('SIGKILL');
}

function report(trial: Trial, problem: string): void {
  console.error(`${trial.kind} ${trial.seed}: ${problem.split('\n').slice(0, 6).join(' | ')}`);
}

function started(): Promise<ChildProcess> {
  return new Promise((resolve) => {
    const child = fork(program, [], {
      execArgv: ['--max-old-space-size=1024'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    child.once('message', () => resolve(child));
  });
}

function tried(child: ChildProcess, trial: Trial): Promise<Outcome | 'crashes' | 'hangs'> {
  return new Promise((resolve) => {
    const end = (result: Outcome | 'crashes' | 'hangs') => {
      clearInterval(timer);
      child.removeAllListeners();
      resolve(result);
    };
    const pid = child.pid as number;
    const begin = now(pid);
    const timer = setInterval(() => {
      if (isLate(pid, begin, LIMIT_SECONDS)) end('hangs');
    }, 500);
    child.once('message', (outcome: Outcome) => end(outcome));
    child.once('exit', () => end('crashes'));
    child.send(trial, () => {});
  });
}
