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
  ...[
    'train',
    'sft',
    '--model',
    model,
    '--dataset',
    dataset,
    '--output-dir',
    join(folder, 'runs'),
    '--run-name',
    runName,
  ],
  ...['--batch-size', '2', '--grad-accum', '3', '--epochs', '100', '--max-steps', String(steps), '--save-steps', '4'],
  ...['--eval-steps', '-1', '--validation-split', '0', '--exact', '--lr', '1e-3', '--report-to', 'none', ...more],
];

function launch(flags: readonly string[], command: readonly string[]): Launched {
  const child = spawn(process.execPath, [attune, 'launch', ...flags, '--', ...command], {
    env: { ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: join(folder, 'cache') },
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
  for (let i = 0; i < 3000 && !holds(); i++) await sleep(20);
  if (!holds()) throw new Error(`it did not come to that: ${launched.said()}`);
};
const checkpoints = (run: string) =>
  existsSync(join(folder, 'runs', run))
    ? readdirSync(join(folder, 'runs', run)).filter((name) => /^step-\d+$/.test(name))
    : [];
const weights = (run: string) => readFileSync(join(folder, 'runs', run, 'final/model.safetensors'));

it('goes on from the last checkpoint when a rank is killed, to the same weights', async () => {
  const undisturbed = launch(['--nproc', '2'], train('undisturbed', 40));
  expect(await undisturbed.code, undisturbed.said()).toBe(0);
  const random = new Random('kills', 1);
  const disturbed = launch(['--nproc', '2', '--max-restarts', '3'], train('disturbed', 40));
  let seen = 0;
  for (const rank of [1, 0]) {
    await until(() => checkpoints('disturbed').length > seen && ranksOf(disturbed).length === 2, disturbed);
    await sleep(random.int(0, 100));
    seen = checkpoints('disturbed').length;
    process.kill(ranksOf(disturbed)[rank] as number, 'SIGKILL');
    await until(() => disturbed.said().split('restart ').length - 1 === (rank === 1 ? 1 : 2), disturbed);
  }
  expect(await disturbed.code, disturbed.said()).toBe(0);
  expect(disturbed.said()).toMatch(/rank 1 \(process \d+\) was killed \(SIGKILL/);
  expect(disturbed.said()).toMatch(/rank 0 \(process \d+\) was killed/);
  expect(disturbed.said()).toContain('going on from the last checkpoint');
  expect(weights('disturbed').equals(weights('undisturbed'))).toBe(true);
  // One run folder, one row per step.
  const steps = readMetrics(join(folder, 'runs/disturbed/metrics.jsonl')).map(({ step }) => step);
  expect(steps).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
}, 240_000);

it('names a rank that hangs, and ends the others', async () => {
  const launched = launch(['--nproc', '2', '--timeout', '4'], train('hung', 100_000));
  await until(() => checkpoints('hung').length > 0, launched);
  const stopped = ranksOf(launched)[1] as number;
  process.kill(stopped, 'SIGSTOP');
  const begun = performance.now();
  expect(await launched.code).toBe(1);
  expect((performance.now() - begun) / 1000).toBeLessThan(10);
  expect(launched.said()).toContain(`rank 1 (process ${stopped}) hangs: it was stopped by a signal`);
}, 120_000);

it('says the mistake of a user once, and what launch is for', async () => {
  const wrong = launch(['--nproc', '2', '--max-restarts', '5'], train('wrong', 4, '--lrr', '3'));
  expect(await wrong.code).toBe(2);
  expect(wrong.said()).not.toContain('restart 1');
  const other = launch(['--nproc', '2'], ['generate', '--model', model]);
  expect(await other.code).toBe(2);
  expect(other.said()).toContain('attune launch runs');
}, 60_000);

it('stops on Ctrl-C with a checkpoint that can be resumed on another number of ranks', async () => {
  const launched = launch(['--nproc', '2'], train('stopped', 100_000));
  await until(() => checkpoints('stopped').length > 0, launched);
  launched.child.kill('SIGINT');
  expect(await launched.code, launched.said()).toBe(130);
  const steps = readMetrics(join(folder, 'runs/stopped/metrics.jsonl')).length;
  const more = spawn(
    process.execPath,
    [attune, ...train('stopped', steps + 3, '--resume-from', join(folder, 'runs/stopped'))],
    {
      stdio: 'ignore',
    },
  );
  expect(await new Promise((resolve) => more.on('close', resolve))).toBe(0);
}, 120_000);
