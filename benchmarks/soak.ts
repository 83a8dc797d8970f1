/**
 * Long abuse of the four trainers: `npm run bench -- soak [--kills 1000] [--trainers sft,policy] [--steps 100000]`.
 *
 * Kills: `attune train …` is ended by SIGKILL at random moments and resumed until it is through; its final weights and its
 * metrics and rollouts must be those of a run that nothing disturbed, bit for bit. Steps: one long run of a tiny model, whose resident
 * memory is read in each tenth of it. Several processes may run side by side; each uses a folder of its own.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import { packageRoot } from '../src/tensor/engine/native.ts';
import type { Reading } from './run.ts';

const shared = ['--save-steps', '3', '--eval-steps', '6', '--report-to', 'none', '--no-lora', '--grad-accum', '1'];
const task = 'spell_backward:1';

/** Each trainer's short job; the data are made by `attune tasks generate`. */
const jobs: Record<string, { kind?: string; args: string[] }> = {
  sft: { kind: 'sft', args: ['--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  reward: { kind: 'preference', args: ['--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  preference: { kind: 'preference', args: ['--loss', 'dpo', '--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  policy: {
    args: [
      ...['--task', task, '--batch-size', '2', '--group-size', '4', '--max-steps', '12', '--max-new-tokens', '16'],
      ...['--eval-num-prompts', '4', '--eval-samples', '0', '--eos-penalty', '0.5', '--lr', '1e-3'],
    ],
  },
};

/** One thread, so that numbers cannot depend on the load; compiled sources are kept, so that a life is short. */
const env = {
  ...process.env,
  ...{ ATTUNE_THREADS: '1', OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' },
  NODE_COMPILE_CACHE: join(tmpdir(), 'attune-soak-compiled'),
};

interface Life {
  ended: boolean;
  killed: boolean;
  /** Whether its loop over steps had begun. */
  begun: boolean;
  /** From the start of its loop to its end. */
  seconds: number;
  errors: string;
}

/** When a life is ended: so many seconds after the process started, or after its loop began. */
type Death = { afterStart: number } | { afterBegin: number };

/** One process, killed as `death` says. */
function attune(args: string[], death?: Death): Promise<Life> {
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

/** What must not depend on how often a run was ended. */
function outcome(run: string): string {
  const weights = readFileSync(join(run, 'final', 'model.safetensors')).toString('base64');
  const rows = readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n');
  const steady = rows.map((line) =>
    Object.fromEntries(Object.entries(JSON.parse(line)).filter(([name]) => !/time|seconds|per_second/.test(name))),
  );
  return JSON.stringify({ weights, steady, rollouts: rolloutsOf(run) });
}

function rolloutsOf(run: string): unknown[] {
  const file = join(run, 'rollouts.db');
  if (!existsSync(file)) return [];
  const database = new DatabaseSync(file, { readOnly: true });
  const columns = 'step, prompt_index, prompt, completion, reward';
  const trained = database.prepare(`SELECT ${columns}, rollout_index, advantage FROM rollouts ORDER BY id`).all();
  const evaluated = database.prepare(`SELECT ${columns} FROM eval_rollouts ORDER BY id`).all();
  database.close();
  return [trained, evaluated];
}

const hasCheckpoint = (run: string) => existsSync(run) && readdirSync(run).some((name) => /^step-\d+$/.test(name));

/** A model of 16 dimensions with the tokenizer of models/tiny, from one step of `train sft`. */
async function smallModel(folder: string): Promise<string> {
  const data = join(folder, 'base.jsonl');
  await attune(['tasks', 'generate', '--kind', 'sft', '--tasks', task, '--count', '20', '--out', data]);
  const model = ['--from-config', join(packageRoot, 'benchmarks/soak-model.json'), '--tokenizer', 'models/tiny'];
  const where = [
    '--output-dir',
    folder,
    '--log-dir',
    join(folder, 'logs'),
    '--report-to',
    'none',
    '--run-name',
    'base',
  ];
  const made = await attune(['train', 'sft', ...model, '--dataset', data, '--max-steps', '1', ...where]);
  if (!made.ended) throw new Error(`no model was made: ${made.errors}`);
  return join(folder, 'base', 'final');
}

async function* kills(folder: string, trainers: string[], wanted: number): AsyncGenerator<Reading> {
  const model = await smallModel(folder);
  for (const trainer of trainers) {
    const { kind, args } = jobs[trainer] as (typeof jobs)[string];
    const data = join(folder, `${trainer}.jsonl`);
    if (kind !== undefined)
      await attune(['tasks', 'generate', '--kind', kind, '--tasks', task, '--count', '200', '--out', data]);
    const train = (name: string) => {
      const run = join(folder, trainer, name);
      const where = ['--output-dir', join(folder, trainer), '--log-dir', join(folder, 'logs')];
      if (hasCheckpoint(run)) return ['train', trainer, '--resume-from', run];
      rmSync(run, { recursive: true, force: true });
      const source = kind === undefined ? [] : ['--dataset', data];
      return ['train', trainer, '--model', model, ...shared, ...source, ...args, ...where, '--run-name', name];
    };
    const whole = await attune(train('whole'));
    if (!whole.ended) throw new Error(`${trainer} does not train: ${whole.errors}`);
    const expected = outcome(join(folder, trainer, 'whole'));
    const share = Math.ceil(wanted / trainers.length);
    let { seconds } = whole;
    let [killed, begun, runs, equal] = [0, 0, 0, 0];
    while (killed < share) {
      const name = `run-${runs++}`;
      for (;;) {
        // One life in ten dies before its first step, the others anywhere between there and a little after their end.
        const early = Math.random() < 0.1;
        const death = early ? { afterStart: 0.2 + Math.random() } : { afterBegin: 1.1 * Math.random() * seconds };
        const life = await attune(train(name), killed < share ? death : undefined);
        if (life.ended) {
          seconds = 0.5 * (seconds + life.seconds); // the machine's load changes
          break;
        }
        if (!life.killed) throw new Error(`${trainer} does not resume: ${life.errors}`);
        killed++;
        if (life.begun) begun++;
      }
      if (outcome(join(folder, trainer, name)) === expected) equal++;
      rmSync(join(folder, trainer, name), { recursive: true });
    }
    yield { name: trainer, kills: killed, whileTraining: begun, runs, bitIdentical: equal };
  }
}

/** Resident memory of a long run, read every tenth of it. */
async function* long(folder: string, steps: number): AsyncGenerator<Reading> {
  const data = join(folder, 'long.jsonl');
  await attune(['tasks', 'generate', '--kind', 'sft', '--tasks', task, '--count', '400', '--out', data]);
  const config = join(packageRoot, 'benchmarks/soak-model.json');
  const run = ['--output-dir', folder, '--log-dir', join(folder, 'logs'), '--run-name', 'long', '--report-to', 'none'];
  const args = ['--from-config', config, '--tokenizer', 'models/tiny', '--dataset', data, '--max-steps', String(steps)];
  // 400 rows less the held-out ones, two at a time, are about 196 steps
  const passes = ['--epochs', String(Math.ceil(steps / 150))];
  const quiet = ['--eval-steps', '-1', '--save-steps', String(steps), '--log-steps', '100', '--batch-size', '2'];
  const command = ['train', 'sft', ...args, ...passes, ...quiet, '--grad-accum', '1', '--max-length', '64', ...run];
  const child = spawn(process.execPath, [join(packageRoot, 'bin/attune.mjs'), ...command], { cwd: packageRoot, env });
  child.stdout.resume();
  child.stderr.resume();
  const readings: number[] = [];
  const timer = setInterval(() => {
    const pages = Number(readFileSync(`/proc/${child.pid}/statm`, 'utf8').split(' ')[1]);
    readings.push((pages * 4096) / 2 ** 20);
  }, 5000);
  const code = await new Promise((resolve) => child.on('exit', resolve));
  clearInterval(timer);
  // The end, where reports are drawn, is not a part of it.
  const tenths = Array.from({ length: 10 }, (_, i) => {
    const cut = readings.slice(Math.floor(readings.length * 0.095 * i), Math.ceil(readings.length * 0.095 * (i + 1)));
    return Math.round(cut.reduce((sum, value) => sum + value, 0) / Math.max(1, cut.length));
  });
  const metrics = join(folder, 'long', 'metrics.jsonl');
  const last = JSON.parse(readFileSync(metrics, 'utf8').trim().split('\n').at(-1) as string) as { step: number };
  const result = { name: `${steps} steps`, exit: String(code), step: last.step, mebibytes: tenths.join(' ') };
  yield { ...result, metricsBytes: statSync(metrics).size };
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      kills: { type: 'string', default: '40' },
      trainers: { type: 'string', default: Object.keys(jobs).join() },
      steps: { type: 'string' },
    },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-soak-'));
  try {
    if (values.steps !== undefined) yield* long(folder, Number(values.steps));
    else yield* kills(folder, values.trainers.split(','), Number(values.kills));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
