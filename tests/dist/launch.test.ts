import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Random } from '../../src/random.ts';
import { readMetrics } from '../../src/runs/index.ts';
import { endless, LaunchBed, ranksOf, until } from './launched.ts';

let bed: LaunchBed;
beforeAll(async () => {
  bed = await LaunchBed.make();
});
afterAll(() => bed[Symbol.dispose]());

async function alone(command: readonly string[]): Promise<void> {
  const { code, said } = bed.attune(command);
  expect(await code, said()).toBe(0);
}

// The run has no end of its own, so that every kill finds it at work, however slow or quick the machine is.
it.concurrent('goes on from the last checkpoint when ranks are killed, stops on Ctrl-C, and goes on alone to the weights of an undisturbed run', async () => {
  const random = new Random('kills', 1);
  const disturbed = bed.launch(['--nproc', '2', '--max-restarts', '3'], bed.train('disturbed', endless));
  let reached = 0;
  for (const [i, rank] of [1, 0].entries()) {
    await until(() => bed.newest('disturbed') > reached && ranksOf(disturbed).length === 2, disturbed);
    await sleep(random.int(0, 100));
    process.kill(ranksOf(disturbed)[rank] as number, 'SIGKILL');
    await until(() => disturbed.said().includes(`restart ${i + 1}`), disturbed);
    reached = bed.newest('disturbed');
  }
  await until(() => bed.newest('disturbed') > reached, disturbed);
  disturbed.child.kill('SIGINT');
  expect(await disturbed.code, disturbed.said()).toBe(130);
  expect(disturbed.said().match(/SIGINT/g)).toHaveLength(1);
  expect(disturbed.said()).toMatch(/rank 1 \(process \d+\) was killed \(SIGKILL/);
  expect(disturbed.said()).toMatch(/rank 0 \(process \d+\) was killed/);
  expect(disturbed.said()).toContain('going on from the last checkpoint');
  // One run folder, one row per step; another number of ranks goes on with it.
  const rows = () => readMetrics(join(bed.run('disturbed'), 'metrics.jsonl')).map(({ step }) => step);
  const steps = rows().length + 3;
  await alone(bed.train('disturbed', steps, '--resume-from', bed.run('disturbed')));
  expect(rows()).toEqual(Array.from({ length: steps }, (_, i) => i + 1));
  await alone(bed.train('undisturbed', steps));
  expect(bed.weights('disturbed').equals(bed.weights('undisturbed'))).toBe(true);
}, 900_000);

it.concurrent('saves at SIGTERM, says so once, and ends with the exit code of SIGTERM', async () => {
  const launched = bed.launch(['--nproc', '2'], bed.train('terminated', endless));
  await until(() => bed.newest('terminated') > 0, launched);
  launched.child.kill('SIGTERM');
  expect(await launched.code, launched.said()).toBe(143);
  expect(launched.said().match(/SIGTERM/g)).toHaveLength(1);
  const step = Number(/Stopped after step (\d+)/.exec(launched.said())?.[1]);
  expect(bed.newest('terminated')).toBe(step);
}, 900_000);

it.concurrent('names a rank that hangs, and ends the others', async () => {
  const launched = bed.launch(['--nproc', '2', '--timeout', '4'], bed.train('hung', endless));
  await until(() => bed.newest('hung') > 0 && ranksOf(launched).length === 2, launched);
  const stopped = ranksOf(launched)[1] as number;
  process.kill(stopped, 'SIGSTOP');
  const begun = performance.now();
  expect(await launched.code).toBe(1);
  // Some three seconds; a collective alone would wait for 600.
  expect((performance.now() - begun) / 1000).toBeLessThan(120);
  expect(launched.said()).toContain(`rank 1 (process ${stopped}) hangs: it was stopped by a signal`);
  expect(launched.said()).toContain(`the same command with --resume-from ${bed.run('hung')} goes on`);
}, 900_000);

it.concurrent('says the mistake of a user once, and what launch is for', async () => {
  const wrong = bed.launch(['--nproc', '2', '--max-restarts', '5'], bed.train('wrong', 4, '--lrr', '3'));
  const missing = bed.launch(['--nproc', '2'], bed.train('missing', 4, '--dataset', join(bed.folder, 'nowhere.jsonl')));
  const other = bed.launch(['--nproc', '2'], ['generate', '--model', bed.model]);
  const unknown = bed.launch(['--bogus'], ['train']);
  const nowhere = bed.launch(['--nproc', '2', '--master-addr', 'no.such.name.invalid'], bed.train('nowhere', 4));
  const half = bed.attune(bed.train('half', 4), { RANK: '0' });
  const far = bed.launch(['--nproc', '2', '--master-port', '99999'], bed.train('far', 4));
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
  expect(await half.code).toBe(2);
  expect(half.said()).toMatch(/^attune: RANK=0 says that this is one of several processes, but WORLD_SIZE[^\n]*\n$/);
  expect(await far.code).toBe(2);
  expect(far.said()).toContain('--master-port 99999: a whole number from 1 to 65535 is wanted');
}, 900_000);

it.concurrent('asks one process for a plan, however many there shall be', async () => {
  const planned = bed.launch(['--nproc', '99'], bed.train('planned', 4, '--dry-run'));
  let most = 0;
  while (planned.child.exitCode === null) {
    most = Math.max(most, ranksOf(planned).length);
    await sleep(20);
  }
  expect(await planned.code, planned.said()).toBe(0);
  expect(most).toBe(1);
  expect(planned.said()).toMatch(/^Attention: 99 processes on \d+ cores?: each gets 1 thread, and they take turns/m);
  expect(planned.said()).toMatch(/Steps +4/);
  expect(planned.said()).toMatch(
    /Ranks +99, the memory above is that of each: --shard none \S+ MiB, optimizer \S+ MiB, full \S+ MiB$/m,
  );
}, 900_000);

it.concurrent('refuses one of two launches that take the same name, as a mistake, and the other is not disturbed', async () => {
  const twins = [0, 1].map(() => bed.launch(['--nproc', '2', '--max-restarts', '1'], bed.train('twins', 8)));
  const codes = await Promise.all(twins.map(({ code }) => code));
  const said = twins.map((twin) => twin.said());
  expect(codes.toSorted(), said.join('\n')).toEqual([0, 2]);
  const refused = said[codes.indexOf(2)] as string;
  expect(refused.match(/The run \S+ exists/g)).toHaveLength(1);
  expect(refused).not.toMatch(/rank \d|restart/);
  const steps = readMetrics(join(bed.run('twins'), 'metrics.jsonl')).map(({ step }) => step);
  expect(steps).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(bed.weights('twins').length).toBeGreaterThan(0);
}, 900_000);

it.concurrent('examines the ranks of a launch', async () => {
  const doctor = bed.launch(['--nproc', '2'], ['doctor', '--dist', '--json']);
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
  const policy = bed.launch(
    ['--nproc', '2'],
    [
      ...['train', 'policy', '--model', join(import.meta.dirname, '../../models/tiny'), '--task', 'number_sorting:1'],
      ...['--batch-size', '2', '--grad-accum', '1', '--group-size', '4', '--max-new-tokens', '16', '--max-steps', '1'],
      ...['--eval-steps', '-1', '--report-to', 'none', '--no-save-model', '--output-dir', join(bed.folder, 'runs')],
    ],
  );
  expect(await policy.code, policy.said()).toBe(0);
  expect(policy.said()).toContain('Note, step 1');
  expect(policy.said()).not.toContain('[rank 1]');
}, 900_000);
