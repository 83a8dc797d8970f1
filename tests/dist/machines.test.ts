/** Several machines, each with a launcher of its own: here they are all this one. */
import { spawn } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../src/dist/meeting.ts';
import { endless, LaunchBed, type Launched, ranksOf, until } from './launched.ts';

let bed: LaunchBed;
beforeAll(async () => {
  bed = await LaunchBed.make();
});
afterAll(() => bed[Symbol.dispose]());

const place = (machine: number, port: number) => [
  ...['--nproc', '1', '--nnodes', '2', '--node-rank', `${machine}`],
  ...['--master-addr', 'localhost', '--master-port', `${port}`],
];

it.concurrent('says what to start on a machine that is missing, and that starts it', async () => {
  const port = await freePort();
  const first = bed.launch(place(0, port), bed.train('two', 2));
  await until(() => /Start there:\n.*\n/.test(first.said()), first);
  expect(first.said()).toMatch(
    `attune launch: machine 1 (rank 1) has not come to localhost:${port}. Waiting for up to 300 s (ATTUNE_DIST_START). Start there:`,
  );
  const command = /Start there:\n(.*)\n/.exec(first.said())?.[1] as string;
  expect(command).toContain('--node-rank 1');
  const env = { ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: `${bed.folder}/cache` };
  const second = spawn('sh', ['-c', command], { env, stdio: 'ignore' });
  expect(await new Promise((resolve) => second.on('close', resolve))).toBe(0);
  expect(await first.code, first.said()).toBe(0);
  expect(first.said()).toContain('attune launch: all machines are there');
  expect(bed.weights('two').length).toBeGreaterThan(0);
}, 900_000);

it.concurrent('ends at Ctrl-C while a machine is missing', async () => {
  const launched = bed.launch(place(0, await freePort()), bed.train('left', 2));
  await until(() => launched.said().includes('Start there:'), launched);
  launched.child.kill('SIGINT');
  expect(await launched.code).toBe(130);
  expect(launched.said()).not.toContain('Waited');
}, 900_000);

it.concurrent('says it again when the time is over, and in words of its own', async () => {
  const env = { ATTUNE_DIST_START: '3' };
  const [zero, one] = [0, 1].map(async (machine) => {
    const launched = bed.launch(place(machine, await freePort()), bed.train('never', 2), env);
    expect(await launched.code).toBe(1);
    return launched.said();
  });
  const starts = (said: string) => said.match(/^ {2}.* launch .*--node-rank (\d)/gm);
  expect(starts((await zero) as string)).toHaveLength(2);
  expect(await zero).toContain('Waited 3 s for all ranks to start (ATTUNE_DIST_START). Missing: rank 1.');
  expect(starts((await one) as string)).toHaveLength(2);
  expect(await one).toMatch(/machine 0 does not answer at localhost:\d+/);
  expect(await one).toContain('Rank 1 did not reach the store of rank 0');
  // c10d's own lines.
  for (const said of [await zero, await one]) expect(said).not.toMatch(/socket\.cpp|c10d|InitGoogleLogging/);
}, 900_000);

it.concurrent('goes on from the last checkpoint on every machine', async () => {
  const port = await freePort();
  const machines = [0, 1].map((machine) =>
    bed.launch([...place(machine, port), '--max-restarts', '9'], bed.train('again', endless)),
  );
  const [first, second] = machines as [(typeof machines)[0], (typeof machines)[0]];
  await until(() => bed.newest('again') > 0 && ranksOf(second).length === 1, second);
  const reached = bed.newest('again');
  process.kill(ranksOf(second)[0] as number, 'SIGKILL');
  for (const machine of machines)
    await until(() => machine.said().includes('going on from the last checkpoint'), machine);
  await until(() => bed.newest('again') > reached + 4, first);
  for (const { child } of machines) child.kill('SIGTERM');
  for (const { code, said } of machines) expect(await code, said()).toBe(143);
}, 900_000);

it.concurrent('says how a machine comes back that was lost, and ends with it at Ctrl-C', async () => {
  const port = await freePort();
  const [first, second] = [0, 1].map((machine) =>
    bed.launch([...place(machine, port), '--max-restarts', '9'], bed.train('back', endless)),
  ) as [Launched, Launched];
  await until(() => bed.newest('back') > 0, first);
  first.child.kill('SIGKILL');
  const comesBack = /Start there:\n(.*--node-rank 0 .*--resume-from .*)\n/;
  await until(() => comesBack.test(second.said()), second);
  const reached = bed.newest('back');
  const [, command] = comesBack.exec(second.said()) as RegExpExecArray;
  const env = { ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: `${bed.folder}/cache` };
  const again = spawn('sh', ['-c', `exec ${command}`], { env, stdio: 'ignore' });
  await until(() => bed.newest('back') > reached, second);
  const restarts = () => second.said().match(/restart \d+ of 9/g);
  const before = restarts();
  again.kill('SIGINT');
  expect(await new Promise((resolve) => again.on('close', resolve))).toBe(130);
  // It was not sent the signal, and starts nothing again.
  expect(await second.code, second.said()).toBe(130);
  expect(second.said()).toContain('the ranks were asked to end');
  expect(restarts()).toEqual(before);
}, 900_000);
