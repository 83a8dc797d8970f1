/**
 * Run by hostile.test.ts and benchmarks/fuzz.ts in a process of its own. Every operator of the registry, of all
 * namespaces, is either refused as internal to libtorch or called once per round with random arguments: mostly of the
 * right kind, and mostly with a wrong value. They are derived from the operator's name and the seed, so another
 * operator in the list changes nothing for the rest. The operator's name is written down before each call, so that a
 * crash has a name.
 *
 * With `compare` as the last argument, the operators that can be called directly (frame.ts) are called again boxed,
 * with the same arguments; result or refusal must be the same.
 *
 *     node src/tensor/fuzz.test-support.ts <seed> <log> [rounds: seed, seed + 1, …] [operators to leave out, by commas] [those to call, a regular expression] [compare]
 */
import { openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DType } from './engine/dtype.ts';
import { type ArgumentInfo, native } from './engine/native.ts';
import { generator, liveTensors, noGrad, scope, seed, setThreads, Tensor, TensorError, tensor } from './index.ts';
import { invoke, invokeBoxed, type Operator, operator } from './operator.ts';

const [seedText, log, roundsText = '1', without = '', alone = '', mode = ''] = process.argv.slice(2) as [
  string,
  string,
  ...string[],
];
setThreads(1);
Error.stackTraceLimit = 0; // most calls are refused, and a stack trace is expensive
process.chdir(dirname(log)); // from_file creates files of any name

// mulberry32
let state = 0;
function startFrom(text: string): void {
  state = 2_166_136_261; // FNV-1a
  for (const character of text) state = Math.imul(state ^ (character.codePointAt(0) as number), 16_777_619) >>> 0;
}
function random(): number {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
function pick<T>(list: readonly T[]): T {
  return list[Math.floor(random() * list.length)] as T;
}
function several<T>(make: () => T): T[] {
  return Array.from({ length: Math.floor(random() * 4) }, make);
}

const FLOATS: DType[] = ['float32', 'float32', 'float64', 'bfloat16', 'float16'];
const OTHERS: DType[] = ['int64', 'int64', 'bool', 'uint8', 'int32', 'int8', 'complex64'];
const SHAPES = [
  [],
  [0],
  [1],
  [3],
  [2, 3],
  [3, 3],
  [2, 3, 4],
  [1, 1],
  [0, 3],
  [2, 2, 3, 3],
  [4],
  [5, 1, 2],
  [1, 2, 3, 4, 5],
];
const INTEGERS = [0, 1, 2, 3, -1, -2, 4, 7, 1, 2, 0, 1, 100, -100, 1e15, -1e15, Number.MAX_SAFE_INTEGER];
const GARBAGE = [
  1,
  -1,
  'x',
  [],
  {},
  true,
  Number.NaN,
  [1, 2],
  1n,
  Symbol('s'),
  [null],
  Number.POSITIVE_INFINITY,
  '',
  new Map(),
  () => 1,
  [[1]],
];

/** In half of the calls nearly all tensors share one dtype, to get past the first check to the others. */
let common: DType | null = null;

/**
 * The bytes of 1,024 random elements by dtype. Tensors take theirs from a random place here, which is many times faster
 * than drawing each.
 */
const table = new Map<DType, { bytes: Uint8Array; each: number }>();

function someValues(dtype: DType, shape: readonly number[]): Uint8Array {
  let known = table.get(dtype);
  if (known === undefined) {
    const length = 1024;
    const whole = [0, 1, 2, 3, 100, ...(dtype === 'uint8' ? [] : [-1, -3])];
    const values = /^u?int/.test(dtype) ? whole : [0, 1, 2, -1, 3, 0.5, 100, -3];
    const before = state;
    startFrom(dtype);
    const made = tensor(
      Array.from({ length }, () => pick(values)),
      { dtype },
    );
    known = { bytes: new Uint8Array(native.bytesOf(made.handle)), each: 0 };
    known.each = known.bytes.length / length;
    made.dispose();
    table.set(dtype, known);
    state = before; // a seed gives the same call whatever ran before
  }
  const { bytes, each } = known;
  const count = shape.reduce((product, size) => product * size, 1);
  const from = Math.floor(random() * (bytes.length / each - count)) * each;
  return bytes.subarray(from, from + count * each);
}

function randomTensor(name = ''): Tensor {
  const own = pick(random() < 0.6 ? FLOATS : OTHERS);
  const usual = /index|indices|target|offsets/.test(name) ? 'int64' : common;
  const dtype = common !== null && usual !== null && random() < 0.9 ? usual : own;
  const shape = pick(SHAPES);
  let made = new Tensor(native.fromBytes(someValues(dtype, shape), dtype, shape));
  if (random() < 0.1 && dtype.startsWith('float')) made.requiresGrad_();
  if (random() < 0.1 && shape.length >= 2) made = made.transpose(0, 1);
  return made;
}

function element(type: string): unknown {
  if (type.startsWith('float')) return pick([0, 1, 0.5, -1, 1e300, Number.NaN, 1e-8]);
  if (type.startsWith('bool')) return random() < 0.5;
  if (type.startsWith('str'))
    return pick([
      'mean',
      'sum',
      'none',
      'ij',
      '',
      'tanh',
      'linear',
      'reflect',
      'L',
      'floor',
      'fro',
      'a,b->ab',
      'x'.repeat(100),
    ]);
  if (type.startsWith('Scalar') && !type.startsWith('ScalarType'))
    return pick([0, 1, -1, 2.5, Number.NaN, 3n, true, { re: 1, im: 2 }, 1e15]);
  if (type.startsWith('ScalarType')) return pick(['float32', 'int64', 'bool', 'QInt8', 'float99', 7]);
  if (type.startsWith('Layout')) return pick(['strided', 'sparse_coo', 1]);
  if (type.startsWith('MemoryFormat')) return pick(['contiguous_format', 'channels_last', 'preserve_format']);
  if (type.startsWith('Device')) return pick(['cpu', 'meta', 'cuda', 'gibberish', 'cuda:99', 'cpu:3']);
  if (type.startsWith('Generator')) return random() < 0.5 ? generator(1) : 3;
  return pick(INTEGERS);
}

/** The degree of a polynomial is a loop count: 10¹⁵ iterations take years, legitimately. */
function isDegree(op: Operator, info: ArgumentInfo): boolean {
  return info.name === 'n' && /special_\w*polynomial/.test(op.name);
}

function argument(op: Operator, info: ArgumentInfo): unknown {
  if (isDegree(op, info)) return info.tensor ? randomTensor() : pick([0, 1, -1, 2.5, 30]);
  const chance = random();
  if (chance < 0.04) return undefined;
  if (chance < 0.06) return null;
  if (chance < 0.09) return random() < 0.2 ? [randomTensor()] : pick(GARBAGE);
  if (!info.required && chance < 0.4) return undefined;
  if (info.tensor && info.list)
    return several(() => (info.type.includes('?[') && random() < 0.3 ? null : randomTensor(info.name)));
  if (info.tensor) return randomTensor(info.name);
  return info.list && random() < 0.8 ? several(() => element(info.type)) : element(info.type);
}

/** Reads the result: that would touch memory that does not belong to it. */
function read(value: unknown): void {
  if (Array.isArray(value)) for (const item of value) read(item);
  if (!(value instanceof Tensor) || value.isFreed || value.numel > 10_000) return;
  try {
    value.numbers();
  } catch (error) {
    if (!(error instanceof TensorError)) throw error;
  }
}

/** null if it is refused. */
function open(name: string): Operator | null {
  try {
    return operator(name);
  } catch (error) {
    if (error instanceof TensorError && error.message.startsWith(`${name} is internal to libtorch: `)) return null;
    throw error;
  }
}

const file = openSync(log, 'w');
const line = Buffer.alloc(120);
const onlyThose = new RegExp(alone);
const leftOut = new Set(without.split(','));
const unexpected = new Set<string>();
const refused: string[] = [];
const before = liveTensors();
let calls = 0;
let succeeded = 0;
const operators: Operator[] = [];
for (const name of native.overloads('').sort()) {
  const op = open(name);
  if (op === null) refused.push(name);
  else if (!leftOut.has(op.name) && onlyThose.test(op.name)) operators.push(op);
}
const mebibytes: number[] = [];
for (let round = 0; round < Number(roundsText); round++) {
  for (const op of operators) {
    if (mode !== 'compare') call(op, Number(seedText) + round);
    else if (op.direct) compare(op, Number(seedText) + round);
  }
  mebibytes.push(Math.round(process.memoryUsage.rss() / 2 ** 20));
}
const left = liveTensors() - before;
console.log(JSON.stringify({ calls, succeeded, refused, unexpected: [...unexpected], left, mebibytes }));

/** The arguments for an operator and a seed; writes the operator's name down. */
function argumentsFor(op: Operator, number: number): unknown[] {
  startFrom(`${number} ${op.name}`);
  common = random() < 0.5 ? pick(FLOATS) : null;
  const args = op.arguments.map((info) => argument(op, info));
  line.fill(' ').write(`${op.name} ${number} ${calls}`);
  writeSync(file, line, 0, line.length, 0);
  return args;
}

/** Calls directly and boxed, each with its own tensors. */
function compare(op: Operator, number: number): void {
  calls++;
  const [direct, boxed] = [invoke, invokeBoxed].map((way) =>
    scope(() => {
      const args = argumentsFor(op, number);
      seed(number);
      try {
        const result = random() < 0.5 ? noGrad(() => way(op, args)) : way(op, args);
        // the contents of unfilled memory are arbitrary
        return /empty|resize/.test(op.name) ? String(result) : `${describe(result)} from ${describe(args)}`;
      } catch (error) {
        return String(error);
      }
    }),
  ) as [string, string];
  if (!direct.startsWith('TensorError')) succeeded++;
  if (direct !== boxed) unexpected.add(`${op.name} ${number}: direct ${direct}, boxed ${boxed}`);
}

/** Everything visible of a value: a tensor's dtype, shape, requiresGrad and elements. */
function describe(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(describe).join(', ')}]`;
  if (!(value instanceof Tensor)) return typeof value === 'object' ? String(value && 'object') : String(value);
  try {
    return `${value} ${value.requiresGrad ? 'with grad' : ''} ${value.numel > 10_000 ? '' : value.numbers()}`;
  } catch (error) {
    return `${value}: ${error}`;
  }
}

function call(op: Operator, number: number): void {
  calls++;
  scope(() => {
    const args = argumentsFor(op, number);
    const body = () => read(invoke(op, args));
    try {
      if (random() < 0.5) noGrad(body);
      else body();
      succeeded++;
    } catch (error) {
      const { name, message } = error as Error;
      if (name !== 'TensorError') unexpected.add(`${op.name}: ${name}: ${message.slice(0, 200)}`);
      else if (/Exception raised|frame #\d/.test(message))
        unexpected.add(`${op.name}: frames in ${message.slice(0, 200)}`);
    }
  });
}
