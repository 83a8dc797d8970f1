import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Random } from '../../src/random.ts';
import { readMetrics } from '../../src/runs/index.ts';
import { corpusRows } from '../../src/tasks/index.ts';
import { tinyModel } from '../support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-launch-'));
afterAll(() => rmSync(folder, { recursive: true }));
const attune = join(import.meta.dirname, '../../bin/attune.mjs');
let model = '';
const dataset = join(folder, 'chats.jsonl');

beforeAll(async () => {
  model = await tinyModel(join(folder, 'model'));
  const rows = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 24, seed: 3 })];
  writeFileSync(dataset, rows.map((row) => JSON.stringify(row)).join('\n'));
});

interface Launched {
  child: ChildProcess;
  /** What it said so far, and its exit code in the end. */
  said: () => string;
  code: Promise<number | null>;
}

const train = (runName: string, steps: number, ...more: string[]) => [
  ...['train', 'sft', '--model', model, '--dataset', dataset, '--output-dir', join(folder, 'runs')],
  ...['--run-name', runName, '--batch-size', '2', '--grad-accum', '3', '--epochs', '100000', '--max-steps', `${steps}`],
  ...['--save-steps', '4', '--save-total-limit', '3', '--eval-steps', '-1', '--validation-split', '0', '--exact'],
  ...['--lr', '1e-3', '--lr-schedule', 'constant', '--warmup-steps', '0', '--report-to', 'none', ...more],
];
/** More steps than any machine takes while a test looks on. */
const endless = 1_000_000;

const environment = () => ({ ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: join(folder, 'cache') });

function launch(flags: readonly string[], command: readonly string[]): Launched {
  // A machine with too much to do must not make a rank look hung.
  const child = spawn(process.execPath, [attune, 'launch', '--hang-timeout', '0', ...flags, '--', ...command], {
    env: environment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  return { child, said: () => text, code: new Promise((resolve) => child.on('close', resolve)) };
}

/** The processes that a launcher has started, in the order of ranks. */
const ranksOf = ({ child }: Launched) =>
  readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);

const until = async (holds: () => boolean, launched: Launched) => {
  while (!holds()) {
    if (launched.child.exitCode !== null) throw new Error(`it ended before it came to that: ${launched.said()}`);
    await sleep(20);
  }
};
/** The step of a run's newest checkpoint; 0 before the first. */
const newest = (run: string) =>
  existsSync(join(folder, 'runs', run))
    ? Math.max(0, ...readdirSync(join(folder, 'runs', run)).map((name) => Number(/^step-(\d+)$/.exec(name)?.[1] ?? 0)))
    : 0;
const weights = (run: string) => readFileSync(join(folder, 'runs', run, 'final/model.safetensors'));

async function alone(command: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [attune, ...command], { env: environment(), stdio: 'ignore' });
  expect(await new Promise((resolve) => child.on('close', resolve))).toBe(0);
}

// The run has no end of its own, so that every kill finds it at work, however slow or quick the machine is.
it.concurrent('goes on from the last checkpoint when ranks are killed, stops on Ctrl-C, and goes on alone to the weights of an undisturbed run', async () => {
  const random = new Random('kills', 1);
  const disturbed = launch(['--nproc', '2', '--max-restarts', '3'], train('disturbed', endless));
  let reached = 0;
  for (const [i, rank] of [1, 0].entries()) {
    await until(() => newest('disturbed') > reached && ranksOf(disturbed).length === 2, disturbed);
    await sleep(random.int(0, 100));
    process.kill(ranksOf(disturbed)[rank] as number, 'SIGKILL');
    await until(() => disturbed.said().includes(`restart ${i + 1}`), disturbed);
    reached = newest('disturbed');
  }
  await until(() => newest('disturbed') > reached, disturbed);
  disturbed.child.kill('SIGINT');
  expect(await disturbed.code, disturbed.said()).toBe(130);
  expect(disturbed.said()).toMatch(/rank 1 \(process \d+\) was killed \(SIGKILL/);
  expect(disturbed.said()).toMatch(/rank 0 \(process \d+\) was killed/);
  expect(disturbed.said()).toContain('going on from the last checkpoint');
  // One run folder, one row per step; another number of ranks goes on with it.
  const rows = () => readMetrics(join(folder, 'runs/disturbed/metrics.jsonl')).map(({ step }) => step);
  const steps = rows().length + 3;
  await alone(train('disturbed', steps, '--resume-from', join(folder, 'runs/disturbed')));
  expect(rows()).toEqual(Array.from({ length: steps }, (_, i) => i + 1));
  await alone(train('undisturbed', steps));
  expect(weights('disturbed').equals(weights('undisturbed'))).toBe(true);
}, 900_000);

it.concurrent('names a rank that hangs, and ends the others', async () => {
  const launched = launch(['--nproc', '2', '--timeout', '4'], train('hung', endless));
  await until(() => newest('hung') > 0 && ranksOf(launched).length === 2, launched);
  const stopped = ranksOf(launched)[1] as number;
  process.kill(stopped, 'SIGSTOP');
  const begun = performance.now();
  expect(await launched.code).toBe(1);
  // Some three seconds; a collective alone would wait for 600.
  expect((performance.now() - begun) / 1000).toBeLessThan(120);
  expect(launched.said()).toContain(`rank 1 (process ${stopped}) hangs: it was stopped by a signal`);
  expect(launched.said()).toContain(`the same command with --resume-from ${join(folder, 'runs', 'hung')} goes on`);
}, 900_000);

it.concurrent('says the mistake of a user once, and what launch is for', async () => {
  const wrong = launch(['--nproc', '2', '--max-restarts', '5'], train('wrong', 4, '--lrr', '3'));
  const missing = launch(['--nproc', '2'], train('missing', 4, '--dataset', join(folder, 'nowhere.jsonl')));
  const other = launch(['--nproc', '2'], ['generate', '--model', model]);
  const unknown = launch(['--bogus'], ['train']);
  const nowhere = launch(['--nproc', '2', '--master-addr', 'no.such.name.invalid'], train('nowhere', 4));
  const far = launch(['--nproc', '2', '--master-port', '99999'], train('far', 4));
  expect(await wrong.code).toBe(2);
  expect(wrong.said().trim().split(/\n+/)).toEqual([
    "error: unknown option '--lrr'",
    '(Did you mean --lr?)',
    '(add --help for what can be asked)',
  ]);
  expect(await missing.code).toBe(2);
  expect(missing.said().match(/nowhere\.jsonl: no such file/g)).toHaveLength(1);
  expect(missing.said()).not.toMatch(/rank \d/);
  expect(await other.code).toBe(2);
  expect(other.said()).toContain('attune launch runs');
  expect(await unknown.code).toBe(2);
  expect(unknown.said()).toContain("error: unknown option '--bogus'");
  expect(unknown.said()).toContain('attune launch --nproc 2 -- train sft');
  expect(await nowhere.code).toBe(2);
  expect(nowhere.said()).toMatch(/^attune: The ranks shall meet at "no\.such\.name\.invalid"[^\n]*\n$/);
  expect(await far.code).toBe(2);
  expect(far.said()).toContain('--master-port 99999: a whole number from 1 to 65535 is wanted');
}, 900_000);

it.concurrent('examines the ranks of a launch', async () => {
  const doctor = launch(['--nproc', '2'], ['doctor', '--dist', '--json']);
  expect(await doctor.code, doctor.said()).toBe(0);
  const { ranks, unequal, allReduce, reduceScatter, allGather } = JSON.parse(doctor.said());
  expect(ranks).toMatchObject([
    { rank: 0, threads: 1 },
    { rank: 1, threads: 1 },
  ]);
  expect(unequal).toEqual([]);
  for (const { bytes, gigabytesPerSecond } of [...allReduce, reduceScatter, allGather]) {
    expect(bytes).toBeGreaterThanOrEqual(2 ** 20);
    expect(gigabytesPerSecond).toBeGreaterThan(0);
  }
}, 900_000);

it.concurrent('lets rank 0 alone explain the metrics of a policy', async () => {
  const policy = launch(
    ['--nproc', '2'],
    [
      ...['train', 'policy', '--model', join(import.meta.dirname, '../../models/tiny'), '--task', 'number_sorting:1'],
      ...['--batch-size', '2', '--grad-accum', '1', '--group-size', '4', '--max-new-tokens', '16', '--max-steps', '1'],
      ...['--eval-steps', '-1', '--report-to', 'none', '--no-save-model', '--output-dir', join(folder, 'runs')],
    ],
  );
  expect(await policy.code, policy.said()).toBe(0);
  expect(policy.said()).toContain('Note, step 1');
  expect(policy.said()).not.toContain('[rank 1]');
}, 900_000);
