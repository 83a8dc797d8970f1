import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type LaunchOptions, launchRanks } from './launch.ts';

/** Two ranks that send signs of life; the second then runs the given code. */
async function launched(second: string, options: Partial<LaunchOptions> = {}, flags: readonly string[] = []) {
  const beat = join(import.meta.dirname, '../heartbeat.ts');
  const tensors = join(import.meta.dirname, '../../tensor/index.ts');
  const program = `
    import { startBeating } from ${JSON.stringify(beat)};
    import { ones, setThreads } from ${JSON.stringify(tensors)};
    startBeating();
    if (process.env.RANK === '1') { ${second} }
    else setTimeout(() => {}, 4000);`;
  const said: string[] = [];
  const begun = performance.now();
  const result = await launchRanks({
    ...{ nproc: 2, nnodes: 1, nodeRank: 0, masterAddr: '127.0.0.1', endSeconds: 4, hangSeconds: 3 },
    command: [process.execPath, ...flags, '--input-type=module-typescript', '-e', program],
    tell: (line) => said.push(line),
    ...options,
  });
  return { ...result, said, seconds: (performance.now() - begun) / 1000 };
}

it.concurrent('names a rank that hangs in JavaScript', async () => {
  const { code, failure, seconds } = await launched("process.title = 'hangs'; for (;;);");
  expect(code).toBe(1);
  expect(failure).toMatch(
    /^rank 1 \(process \d+\) hangs: JavaScript has been at one place for \d+ s, outside of native/,
  );
  expect(seconds).toBeGreaterThan(3);
});

it.concurrent('names a rank that blocks', async () => {
  const { failure } = await launched('Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);');
  expect(failure).toMatch(/^rank 1 \(process \d+\) hangs: JavaScript has been at one place/);
});

it.concurrent('leaves a rank alone that is in native code, or that computes with native calls, for longer than that', async () => {
  const native = `
    setThreads(1);
    const a = ones([1500, 1500]);
    const end = performance.now() + 2500;
    while (performance.now() < end) a.matmul(a);
    process.exit(0);`;
  const { failure } = await launched(native, { hangSeconds: 1 });
  expect(failure).toBeUndefined();
});

it.concurrent('names a rank whose heap is full', async () => {
  const fill = 'const kept = []; for (;;) kept.push(new Array(1000).fill(kept.length));';
  const { failure } = await launched(fill, { hangSeconds: 30 }, ['--max-old-space-size=48']);
  expect(failure).toMatch(/^rank 1 \(process \d+\) ran out of memory: JavaScript's heap is full/);
});

it.concurrent('passes on the signal that it got', async () => {
  const stop = new AbortController();
  const said: string[] = [];
  const program = `
    for (const name of ['SIGINT', 'SIGTERM']) process.on(name, () => { console.error(name); process.exit(7); });
    setInterval(() => {}, 1000);
    console.error('ready');`;
  const { code } = await launchRanks({
    ...{ nproc: 2, nnodes: 2, nodeRank: 1, masterAddr: '127.0.0.1', endSeconds: 4, hangSeconds: 0 },
    command: [process.execPath, '-e', program],
    tell: (line) => said.push(line) === 2 && stop.abort('SIGTERM'),
    signal: stop.signal,
  });
  expect(code).toBe(143);
  expect(said.slice(2).sort()).toEqual(['[rank 2] SIGTERM', '[rank 3] SIGTERM']);
});

const plain = { nproc: 2, nnodes: 1, nodeRank: 0, masterAddr: '127.0.0.1', endSeconds: 20, hangSeconds: 0 };

it.concurrent('ends ranks that wait for others, whatever they make of a signal', async () => {
  const stop = new AbortController();
  const program = `
    process.on('SIGINT', () => {});
    setTimeout(() => {}, 20_000);
    require('fs').writeSync(3, '{"waiting": [1]}\\n');`;
  const result = await launchRanks({
    ...plain,
    nproc: 1,
    command: [process.execPath, '-e', program],
    tell: () => {},
    onWaiting: () => stop.abort('SIGINT'),
    signal: stop.signal,
  });
  expect(result).toEqual({ code: 130 });
});

it.concurrent('hears a signal that came before its ranks were there', async () => {
  const command = [process.execPath, '-e', 'setTimeout(() => {}, 20_000)'];
  const signal = AbortSignal.abort('SIGTERM');
  expect(await launchRanks({ ...plain, command, tell: () => {}, signal })).toEqual({ code: 143 });
});

it.concurrent('does not call it a failure that ranks were asked to end elsewhere', async () => {
  const said: string[] = [];
  // The first rank hears of it from the second, and is slower.
  const program = "process.env.RANK === '1' ? process.exit(143) : setTimeout(() => process.exit(130), 3000)";
  const command = [process.execPath, '-e', program];
  expect(await launchRanks({ ...plain, command, tell: (line) => said.push(line) })).toEqual({ code: 143 });
  expect(said).toEqual([
    'attune launch: the ranks were asked to end by a signal to one of them, or on another machine',
  ]);
});
