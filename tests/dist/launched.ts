/** `attune launch` as a user starts it: processes that train a tiny model in a folder of the test's own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { corpusRows } from '../../src/tasks/index.ts';
import { tinyModel } from '../support/tiny-model.ts';

const attune = join(import.meta.dirname, '../../bin/attune.mjs');

export interface Launched {
  child: ChildProcess;
  /** What it said so far, and its exit code in the end. */
  said: () => string;
  code: Promise<number | null>;
}

/** More steps than any machine takes while a test looks on. */
export const endless = 1_000_000;

/** A folder with a model and a dataset, and the commands that train there. */
export class LaunchBed {
  readonly folder: string;
  readonly model: string;
  readonly dataset: string;

  private constructor(folder: string, model: string) {
    this.folder = folder;
    this.model = model;
    this.dataset = join(folder, 'chats.jsonl');
    const rows = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 24, seed: 3 })];
    writeFileSync(this.dataset, rows.map((row) => JSON.stringify(row)).join('\n'));
  }

  static async make(): Promise<LaunchBed> {
    const folder = mkdtempSync(join(tmpdir(), 'attune-launch-'));
    return new LaunchBed(folder, await tinyModel(join(folder, 'model')));
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true });
  }

  train(runName: string, steps: number, ...more: string[]): string[] {
    return [
      ...['train', 'sft', '--model', this.model, '--dataset', this.dataset, '--output-dir', join(this.folder, 'runs')],
      ...['--run-name', runName, '--batch-size', '2', '--grad-accum', '3', '--epochs', '100000'],
      ...['--max-steps', `${steps}`, '--save-steps', '4', '--save-total-limit', '3', '--eval-steps', '-1'],
      ...['--validation-split', '0', '--exact', '--lr', '1e-3', '--lr-schedule', 'constant', '--warmup-steps', '0'],
      ...['--report-to', 'none', ...more],
    ];
  }

  attune(args: readonly string[], env: Record<string, string> = {}): Launched {
    const child = spawn(process.execPath, [attune, ...args], {
      env: { ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: join(this.folder, 'cache'), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
    return { child, said: () => text, code: new Promise((resolve) => child.on('close', resolve)) };
  }

  launch(flags: readonly string[], command: readonly string[], env: Record<string, string> = {}): Launched {
    // A machine with too much to do must not make a rank look hung.
    return this.attune(['launch', '--hang-timeout', '0', ...flags, '--', ...command], env);
  }

  run(name: string): string {
    return join(this.folder, 'runs', name);
  }

  /** The step of a run's newest checkpoint; 0 before the first. */
  newest(name: string): number {
    if (!existsSync(this.run(name))) return 0;
    return Math.max(0, ...readdirSync(this.run(name)).map((file) => Number(/^step-(\d+)$/.exec(file)?.[1] ?? 0)));
  }

  weights(name: string): Buffer {
    return readFileSync(join(this.run(name), 'final/model.safetensors'));
  }
}

/** The processes that a launcher has started, in the order of ranks. */
export const ranksOf = ({ child }: Launched): number[] =>
  readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);

export async function until(holds: () => boolean, launched: Launched): Promise<void> {
  const end = Date.now() + 300_000;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`it did not come to that in five minutes: ${launched.said()}`);
    const { exitCode, signalCode } = launched.child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`it ended before it came to that: ${launched.said()}`);
    await sleep(20);
  }
}
