/** Clients that leave their streams at random: what is lost, and where the server's memory goes while they do. */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { liveTensors } from '../../src/tensor/index.ts';
import type { Reading } from '../run.ts';
import type { Crowd } from './crowd.ts';
import type { Load } from './requests.ts';

/** Parts of the process's memory in MiB, and the number of tensors. */
interface Memory {
  resident: number;
  /** Resident and not of a file: V8's heap, buffers, and what native code has allocated. */
  anonymous: number;
  /** What V8 has reserved for JavaScript, and what is used of it. */
  heapTotal: number;
  heapUsed: number;
  /** Buffers outside of V8's heap. */
  external: number;
  /** What is left of `anonymous`: native code and the threads' stacks. */
  native: number;
  tensors: number;
}

const SECONDS_BETWEEN_LINES = 10;

export async function* leaving(crowd: Crowd, load: Load): AsyncIterable<Reading> {
  const seen: Memory[] = [];
  const before = heapAfterCollection();
  const note = () => {
    const now = memoryNow();
    seen.push(now);
    console.log(JSON.stringify({ seconds: seen.length * SECONDS_BETWEEN_LINES, ...now }));
  };
  const timer = setInterval(note, SECONDS_BETWEEN_LINES * 1000);
  const reading = await crowd.run(load);
  clearInterval(timer);
  await new Promise((resolve) => setTimeout(resolve, 500));
  yield {
    name: `${load.clients} clients, half of the streams left, ${load.seconds} s`,
    requests: reading.requests,
    left: reading.left,
    lost: reading.lost,
    ...(reading.reason === undefined ? {} : { reason: reading.reason }),
    residentQuartersMiB: quarters(seen.map(({ resident }) => resident)),
    heapTotalQuartersMiB: quarters(seen.map(({ heapTotal }) => heapTotal)),
    nativeQuartersMiB: quarters(seen.map(({ native }) => native)),
    heapAfterCollectionMiB: `${before} ${heapAfterCollection()}`,
  };
}

function memoryNow(): Memory {
  const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
  const anonymous = Number(/RssAnon:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? 0) * 1024;
  const bytes = { resident: rss, anonymous, heapTotal, heapUsed, external, native: anonymous - heapTotal - external };
  const inMegabytes = Object.fromEntries(Object.entries(bytes).map(([name, value]) => [name, megabytes(value)]));
  return { ...(inMegabytes as Omit<Memory, 'tensors'>), tensors: liveTensors() };
}

/** The means of four parts in order of time. */
function quarters(values: readonly number[]): string {
  const size = Math.max(1, Math.floor(values.length / 4));
  const mean = (some: readonly number[]) => Math.round(some.reduce((sum, value) => sum + value, 0) / some.length);
  return [0, 1, 2, 3].map((i) => mean(values.slice(i * size, (i + 1) * size))).join(' ');
}

/** JavaScript's heap without what can be collected. */
function heapAfterCollection(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return megabytes(process.memoryUsage().heapUsed);
}

const megabytes = (bytes: number): number => Math.round(bytes / 2 ** 20);
