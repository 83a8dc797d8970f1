/**
 * The header of a safetensors file: 8 bytes of length, then JSON that says where each tensor lies. Files come from
 * strangers, so the whole header is checked against the file before any of it is used.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { UserError } from '../../errors.ts';
import { type DType, dtypeBytes } from '../engine/dtype.ts';

/** A safetensors file that is malformed, or cannot be read or written: damaged input, as a broken config.json is. The message names the file and the fault. */
export class SafetensorsError extends UserError {
  override name = 'SafetensorsError';
}

const MAX_HEADER = 100 * 2 ** 20; // the reference implementation's limit
const MAX_DIMENSIONS = 64; // more than any tensor has; the limit bounds the work on a hostile file

const fromCode: Readonly<Record<string, DType>> = {
  F64: 'float64',
  F32: 'float32',
  F16: 'float16',
  BF16: 'bfloat16',
  I64: 'int64',
  I32: 'int32',
  I16: 'int16',
  I8: 'int8',
  U8: 'uint8',
  BOOL: 'bool',
  C64: 'complex64',
  F8_E4M3: 'float8_e4m3fn',
  F8_E5M2: 'float8_e5m2',
  U16: 'uint16',
  U32: 'uint32',
  U64: 'uint64',
};
const toCode = new Map(Object.entries(fromCode).map(([code, dtype]) => [dtype, code]));

/** The format's name for a dtype, or undefined if it has none. */
export function codeOf(dtype: DType): string | undefined {
  return toCode.get(dtype);
}

/** A tensor in a safetensors file: dtype, shape, and where its bytes lie. */
export interface TensorInfo {
  dtype: DType;
  shape: readonly number[];
  /** From the start of the file. */
  offset: number;
  bytes: number;
}

/** A safetensors file's table of tensors and its metadata. */
export interface Header {
  tensors: Map<string, TensorInfo>;
  metadata: Record<string, string>;
}

type Fail = (fault: string) => never;

/** Checks a header against the file it heads: sizes, offsets, overlaps, holes, shapes × dtype = bytes, duplicate names. */
export function parseHeader(path: string, text: Uint8Array, fileBytes: number): Header {
  const fail: Fail = (fault) => {
    throw new SafetensorsError(`${path}: ${fault}`);
  };
  const parsed = parseObject(text, fail);
  const start = 8 + text.length;
  const available = fileBytes - start;
  const tensors = new Map<string, TensorInfo>();
  let metadata: Record<string, string> = {};
  for (const [name, entry] of Object.entries(parsed)) {
    if (name === '__metadata__') {
      if (!isRecord(entry) || Object.values(entry).some((value) => typeof value !== 'string'))
        fail('__metadata__ is not a map of strings');
      metadata = entry as Record<string, string>;
      continue;
    }
    tensors.set(name, tensorInfo(name, entry, start, available, fail));
  }
  checkLayout(tensors, start, available, fail);
  return { tensors, metadata };
}

function parseObject(text: Uint8Array, fail: Fail): Record<string, unknown> {
  let json: string;
  let parsed: unknown;
  try {
    json = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(text);
    parsed = JSON.parse(json);
  } catch (error) {
    return fail(`the header is not valid JSON (${(error as Error).message})`);
  }
  if (!isRecord(parsed)) return fail('the header is not a JSON object');
  const repeated = duplicateKey(json);
  if (repeated !== undefined) fail(`the header names ${shown(repeated)} twice`);
  return parsed;
}

function tensorInfo(name: string, entry: unknown, start: number, available: number, fail: Fail): TensorInfo {
  const its = `tensor ${shown(name)}`;
  if (!isRecord(entry)) return fail(`${its} is not described by an object`);
  const { dtype: code, shape, data_offsets: offsets } = entry;
  const dtype = typeof code === 'string' && Object.hasOwn(fromCode, code) ? fromCode[code] : undefined;
  if (dtype === undefined) return fail(`${its} has the dtype ${shown(code)}, which is not supported`);
  if (!Array.isArray(shape) || shape.length > MAX_DIMENSIONS || !shape.every(isSize))
    return fail(`${its} has the shape ${shown(shape)}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    return fail(`${its} has the data_offsets ${shown(offsets)}`);
  const [from, to] = offsets as [number, number];
  if (from > to || to > available)
    return fail(`${its} lies at ${from}–${to}, but the file holds ${available} bytes of data (is it cut short?)`);
  const sizes = shape as number[];
  // Zero sizes count as 1 here: libtorch multiplies the other sizes for the strides, which must not overflow.
  const extent = sizes.reduce((product, size) => product * Math.max(size, 1), dtypeBytes[dtype]);
  const bytes = sizes.includes(0) ? 0 : extent;
  if (!Number.isSafeInteger(extent) || bytes !== to - from) {
    return fail(`${its} of shape [${shape}] and dtype ${code} needs ${bytes} bytes, its offsets give ${to - from}`);
  }
  return { dtype, shape: sizes, offset: start + from, bytes };
}

/** The tensors must cover the data exactly once: no holes in which bytes could hide, no overlaps. */
function checkLayout(tensors: Map<string, TensorInfo>, start: number, available: number, fail: Fail): void {
  let end = start;
  const ordered = [...tensors].sort((a, b) => a[1].offset - b[1].offset || a[1].bytes - b[1].bytes);
  for (const [name, info] of ordered) {
    if (info.offset < end) fail(`tensor ${shown(name)} overlaps the one before it`);
    if (info.offset > end) fail(`${info.offset - end} bytes before tensor ${shown(name)} belong to no tensor`);
    end = info.offset + info.bytes;
  }
  if (end !== start + available) fail(`${start + available - end} bytes at the end belong to no tensor`);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** A value from the file, shortened for a message. */
function shown(value: unknown): string {
  if (Array.isArray(value) && value.some((item) => typeof item === 'object')) return 'a nested array';
  const text =
    typeof value === 'object' && !Array.isArray(value) && value !== null
      ? 'an object'
      : (JSON.stringify(value) ?? 'missing');
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const COLON = 0x3a;

/**
 * The first key that an object holds twice. JSON.parse keeps the last of them and other parsers the first, so two
 * programs would read two models from one file. One pass over JSON that is known to be valid; a regular expression
 * would overflow the stack on a long string.
 */
function duplicateKey(json: string): string | undefined {
  const levels: Set<string>[] = [];
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (code === OPEN) levels.push(new Set());
    else if (code === CLOSE) levels.pop();
    if (code !== QUOTE) continue;
    const begin = i++;
    for (; json.charCodeAt(i) !== QUOTE; i++) if (json.charCodeAt(i) === BACKSLASH) i++;
    let next = i + 1;
    while (/\s/.test(json.charAt(next))) next++;
    if (json.charCodeAt(next) !== COLON) continue;
    const key = JSON.parse(json.slice(begin, i + 1)) as string;
    const level = levels.at(-1);
    if (level?.has(key)) return key;
    level?.add(key);
  }
  return undefined;
}

/** Reads and checks the header of a safetensors file, without its tensors. */
export function readHeader(path: string): Header {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK); // opening a named pipe would wait for its writer
  } catch (error) {
    throw new SafetensorsError(
      `${path}: ${(error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : (error as Error).message}`,
    );
  }
  try {
    const stat = fstatSync(file);
    if (!stat.isFile()) throw new SafetensorsError(`${path}: not a regular file`);
    const { size } = stat;
    const prefix = new Uint8Array(8);
    if (size < 8 || readSync(file, prefix, 0, 8, 0) !== 8)
      throw new SafetensorsError(`${path}: ${size} bytes are too few for a safetensors file`);
    const length = new DataView(prefix.buffer).getBigUint64(0, true);
    if (length > BigInt(MAX_HEADER))
      throw new SafetensorsError(`${path}: the header claims ${length} bytes; at most ${MAX_HEADER} are allowed`);
    if (length > BigInt(size - 8))
      throw new SafetensorsError(
        `${path}: the header claims ${length} bytes, the file has ${size} in all (is it cut short?)`,
      );
    const text = new Uint8Array(Number(length));
    let read = 0;
    while (read < text.length) {
      const part = readSync(file, text, read, text.length - read, 8 + read);
      if (part === 0) throw new SafetensorsError(`${path}: the file ended inside its header`);
      read += part;
    }
    return parseHeader(path, text, size);
  } finally {
    closeSync(file);
  }
}
