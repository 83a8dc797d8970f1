/**
 * Long abuse of the four trainers: `npm run bench -- soak [--kills 1000] [--trainers sft,policy] [--steps 100000 [--collect]] [--seed 1]`.
 *
 * Kills: `attune train …` is ended by SIGKILL at random moments and resumed until it is through; its final weights and its
 * metrics and rollouts must be those of a run that nothing disturbed, bit for bit. Steps: one long run of a tiny model, whose
 * memory is read at every hundredth of it, with --collect after a collection. Several processes may run side by side; each uses a folder of its own.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import type { Reading } from './run.ts';
import { jobs, kills } from './soak/kills.ts';
import { attune, env, task } from './soak/lives.ts';
import type { MemoryReading } from './soak/long-run.ts';

/** A reading for every tenth of a long run: its mean and greatest resident memory, and what was held at its end. */
async function* long(
  folder: string,
  steps: number,
  options: { seed: string; collect: boolean },
): AsyncGenerator<Reading> {
  const data = join(folder, 'long.jsonl');
  await attune(['tasks', 'generate', '--kind', 'sft', '--tasks', task, '--count', '400', '--out', data]);
  const program = join(import.meta.dirname, `soak/long-run${import.meta.filename.slice(-3)}`);
  const flags = ['--no-warnings', ...(options.collect ? ['--expose-gc'] : [])];
  const args = [...flags, program, folder, data, String(steps), options.seed];
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise<number | null>((resolve) => child.on('exit', resolve));
  let part: MemoryReading[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    part.push(JSON.parse(line) as MemoryReading);
    if (part.length < 10) continue;
    const { resident: _, ...last } = part.at(-1) as MemoryReading;
    const resident = part.map((reading) => reading.resident);
    const mean = Math.round(resident.reduce((sum, value) => sum + value) / resident.length);
    yield { name: `to step ${last.step}`, residentMean: mean, residentMost: Math.max(...resident), ...last };
    part = [];
  }
  const code = await ended;
  if (code !== 0) process.exitCode = 1;
  yield { name: `${steps} steps`, exit: String(code) };
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      kills: { type: 'string', default: '40' },
      trainers: { type: 'string', default: Object.keys(jobs).join() },
      steps: { type: 'string' },
      collect: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
    },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-soak-'));
  try {
    if (values.steps !== undefined) yield* long(folder, Number(values.steps), values);
    else yield* kills(folder, values.trainers.split(','), Number(values.kills));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
