/**
 * Run by hostile.test.ts in a process of its own: calls every function of the addon with every kind of garbage. Leaves
 * the name of the last one in the given file.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { native } from './engine/native.ts';

const [log] = process.argv.slice(2);

// A store may create a file of any name: it lands here.
const folder = mkdtempSync(join(tmpdir(), 'attune-garbage-'));
process.chdir(folder);

const cyclic: unknown[] = [];
cyclic.push(cyclic);
const tensors = [0, 1, 2].map((i) => native.fromBytes(new Float32Array(4).fill(i), 'float32', [2, 2]));
const witness = native.fromBytes(Float32Array.of(1, 2, 3), 'float32', [3]); // nobody else knows its handle

const garbage: unknown[] = [
  undefined,
  null,
  true,
  0,
  -1,
  1.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 31,
  2 ** 53,
  -(2 ** 53),
  1n,
  2n ** 63n - 1n,
  2n ** 80n,
  '',
  'float32',
  'cpu',
  'cuda:0',
  '\u0000',
  '\ud800',
  'x'.repeat(10_000),
  Symbol('s'),
  () => 1,
  {},
  Object.create(null),
  [],
  [1, 2],
  [null],
  [[1]],
  [-1],
  [2 ** 53 - 1, 2 ** 53 - 1],
  cyclic,
  new Array(100).fill(0),
  new Float32Array(4),
  new Uint8Array(0),
  new ArrayBuffer(16),
  new DataView(new ArrayBuffer(8)),
  new SharedArrayBuffer(16),
  new BigInt64Array(2),
  new Date(),
  new Map(),
  new Proxy([], {}),
  new Proxy(
    {},
    {
      get: () => {
        throw new Error('trap');
      },
    },
  ),
  ...tensors,
  tensors,
];

// Deterministic: the same calls every time.
let state = 12_345;
const random = () => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
};
const pick = () => garbage[Math.floor(random() * garbage.length)];

let calls = 0;
let accepted = 0;
// setThreads would start a thousand threads; the tensors above stay for the others; setWarnings would let libtorch
// print warnings about the rest (an empty graph capture on CUDA, say), and nothing may be printed here
const left = new Set(['setThreads', 'free', 'freeAll', 'setWarnings']);
// These take a tensor's memory away, as src/dist asks: all others are called before and after them.
const takers = ['storageDrop', 'storageLend'];
const others = Object.keys(native).filter((key) => !left.has(key) && !takers.includes(key));
for (const name of [...others, ...takers, ...others]) {
  if (log !== undefined) writeFileSync(log, name);
  const call = native[name as keyof typeof native] as (...args: unknown[]) => unknown;
  for (let i = 0; i < 300; i++) {
    const args = Array.from({ length: Math.floor(random() * 7) }, pick);
    calls++;
    try {
      const result = call(...args);
      accepted++;
      // Some return a promise: a later refusal counts too.
      if (result instanceof Promise) result.catch(() => {});
    } catch {
      // refused, as it should be
    }
  }
  try {
    const result = call(...new Array(60).fill(0));
    if (result instanceof Promise) result.catch(() => {});
  } catch {
    // too many arguments
  }
}
for (const value of garbage) {
  try {
    native.setWarnings(value as boolean);
  } catch {
    // refused, as it should be
  }
}
const sane = String(new Float32Array(native.bytesOf(witness))) === '1,2,3';
console.log(JSON.stringify({ calls, accepted, crashed: false, sane }));
rmSync(folder, { recursive: true, force: true });
process.exit(0); // ends even if something still waits for others
