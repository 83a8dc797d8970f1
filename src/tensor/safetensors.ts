/**
 * The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes. Read lazily through a memory
 * map, written beside the target and renamed. A header is checked whole before anything in it is believed.
 *
 *     using file = openSafetensors('model.safetensors');
 *     file.tensor('model.norm.weight');
 */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, readSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { AttuneError, suggestion } from '../errors.ts';
import { type DType, dtypeBytes } from './dtype.ts';
import { native } from './native.ts';
import { Tensor } from './tensor.ts';

/** A file that is not what it says. The message names the file and the fault. */
export class SafetensorsError extends AttuneError {
  override name = 'SafetensorsError';
}

const MAX_HEADER = 100 * 2 ** 20; // the reference implementation's limit

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
};
const toCode = new Map(Object.entries(fromCode).map(([code, dtype]) => [dtype, code]));

export interface TensorInfo {
  dtype: DType;
  shape: readonly number[];
  /** From the start of the file. */
  offset: number;
  bytes: number;
}

export interface Header {
  tensors: Map<string, TensorInfo>;
  metadata: Record<string, string>;
}

/** Checks a header against the file it heads: sizes, offsets, overlaps, holes, shapes × dtype = bytes, duplicate names. */
export function parseHeader(path: string, text: Uint8Array, fileBytes: number): Header {
  const fail = (fault: string): never => {
    throw new SafetensorsError(`${path}: ${fault}`);
  };
  let json: string;
  let parsed: unknown;
  try {
    json = new TextDecoder('utf-8', { fatal: true }).decode(text);
    parsed = JSON.parse(json);
  } catch (error) {
    return fail(`the header is not valid JSON (${(error as Error).message})`);
  }
  if (!isRecord(parsed)) return fail('the header is not a JSON object');
  const repeated = duplicateKey(json);
  if (repeated !== undefined) fail(`the header names "${repeated}" twice`);
  const start = 8 + text.length;
  const available = fileBytes - start;
  const tensors = new Map<string, TensorInfo>();
  let metadata: Record<string, string> = {};
  for (const [name, entry] of Object.entries(parsed)) {
    if (name === '__metadata__') {
      if (!isRecord(entry) || Object.values(entry).some((value) => typeof value !== 'string')) fail('__metadata__ is not a map of strings');
      metadata = entry as Record<string, string>;
      continue;
    }
    tensors.set(name, tensorInfo(name, entry, start, available, fail));
  }
  checkLayout(tensors, start, available, fail);
  return { tensors, metadata };
}

function tensorInfo(name: string, entry: unknown, start: number, available: number, fail: (fault: string) => never): TensorInfo {
  if (!isRecord(entry)) return fail(`tensor "${name}" is not described by an object`);
  const { dtype: code, shape, data_offsets: offsets } = entry;
  const dtype = typeof code === 'string' && Object.hasOwn(fromCode, code) ? fromCode[code] : undefined;
  if (dtype === undefined) return fail(`tensor "${name}" has the dtype ${JSON.stringify(code)}, which is not supported`);
  if (!Array.isArray(shape) || !shape.every(isSize)) return fail(`tensor "${name}" has the shape ${JSON.stringify(shape)}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    return fail(`tensor "${name}" has the data_offsets ${JSON.stringify(offsets)}`);
  }
  const [from, to] = offsets as [number, number];
  const bytes = shape.reduce((product: number, size: number) => product * size, dtypeBytes[dtype]);
  if (from > to || to > available) return fail(`tensor "${name}" lies at ${from}–${to}, but the file holds ${available} bytes of data (is it cut short?)`);
  if (!Number.isSafeInteger(bytes) || bytes !== to - from) {
    return fail(`tensor "${name}" of shape [${shape}] and dtype ${code} needs ${bytes} bytes, its offsets give ${to - from}`);
  }
  return { dtype, shape: shape as number[], offset: start + from, bytes };
}

/** The data is covered exactly once, without holes: so nothing hides in it and no byte serves twice. */
function checkLayout(tensors: Map<string, TensorInfo>, start: number, available: number, fail: (fault: string) => never): void {
  let end = start;
  const ordered = [...tensors].sort((a, b) => a[1].offset - b[1].offset || a[1].bytes - b[1].bytes);
  for (const [name, info] of ordered) {
    if (info.offset < end) fail(`tensor "${name}" overlaps the one before it`);
    if (info.offset > end) fail(`${info.offset - end} bytes before tensor "${name}" belong to no tensor`);
    end = info.offset + info.bytes;
  }
  if (end !== start + available) fail(`${start + available - end} bytes at the end belong to no tensor`);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** JSON.parse keeps the last of two equal keys; a file that relies on that is lying to somebody. */
function duplicateKey(json: string): string | undefined {
  const seen: Set<string>[] = [];
  const strings = /"(?:[^"\\]|\\.)*"(\s*:)?|[{}]/gs;
  for (const match of json.matchAll(strings)) {
    if (match[0] === '{') seen.push(new Set());
    else if (match[0] === '}') seen.pop();
    else if (match[1] !== undefined) {
      const key = JSON.parse(match[0].slice(0, -match[1].length)) as string;
      const level = seen.at(-1);
      if (level?.has(key)) return key;
      level?.add(key);
    }
  }
  return undefined;
}

export function readHeader(path: string): Header {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    throw new SafetensorsError(`${path}: ${(error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : (error as Error).message}`);
  }
  try {
    const size = statSync(path).size;
    const prefix = new Uint8Array(8);
    if (size < 8 || readSync(file, prefix, 0, 8, 0) !== 8) throw new SafetensorsError(`${path}: ${size} bytes are too few for a safetensors file`);
    const length = new DataView(prefix.buffer).getBigUint64(0, true);
    if (length > BigInt(MAX_HEADER)) throw new SafetensorsError(`${path}: the header claims ${length} bytes; at most ${MAX_HEADER} are allowed`);
    if (length > BigInt(size - 8)) throw new SafetensorsError(`${path}: the header claims ${length} bytes, the file has ${size} in all (is it cut short?)`);
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

/** An open file. Its tensors share the mapped bytes and stay valid after it is closed. */
export class SafetensorsFile {
  readonly path: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly #tensors: Map<string, TensorInfo>;
  readonly #mapping: number;
  #open = true;

  constructor(path: string) {
    const header = readHeader(path);
    const mapping = native.mapFile(path);
    for (const [name, info] of header.tensors) {
      if (info.offset + info.bytes > mapping.bytes) {
        native.unmapFile(mapping.id);
        throw new SafetensorsError(`${path}: tensor "${name}" lies beyond the end of the file`);
      }
    }
    this.path = path;
    this.metadata = header.metadata;
    this.#tensors = header.tensors;
    this.#mapping = mapping.id;
  }
  get names(): string[] {
    return [...this.#tensors.keys()];
  }
  has(name: string): boolean {
    return this.#tensors.has(name);
  }
  info(name: string): TensorInfo {
    const info = this.#tensors.get(name);
    if (info === undefined) throw new SafetensorsError(`${this.path}: no tensor "${name}".${suggestion(name, this.#tensors.keys())}`);
    return info;
  }
  /** The tensor, on the file's own bytes (no copy; changing it does not change the file). */
  tensor(name: string): Tensor {
    const info = this.info(name);
    if (!this.#open) throw new SafetensorsError(`${this.path}: the file is closed`);
    return new Tensor(native.mapTensor(this.#mapping, info.offset, info.dtype, info.shape));
  }
  close(): void {
    if (this.#open) native.unmapFile(this.#mapping);
    this.#open = false;
  }
  [Symbol.dispose](): void {
    this.close();
  }
}

export function openSafetensors(path: string): SafetensorsFile {
  return new SafetensorsFile(path);
}

/** Where each tensor of a checkpoint lies: one file, or shards with their index. */
export class Checkpoint {
  readonly #files = new Map<string, SafetensorsFile>();
  readonly #where = new Map<string, SafetensorsFile>();

  /** A folder with `<base>.safetensors` or `<base>.safetensors.index.json` and its shards. */
  constructor(folder: string, base = 'model') {
    const single = join(folder, `${base}.safetensors`);
    const index = join(folder, `${base}.safetensors.index.json`);
    if (existsSync(single)) {
      this.#add(single);
    } else if (existsSync(index)) {
      this.#addShards(folder, index);
    } else {
      throw new SafetensorsError(`${folder}: neither ${base}.safetensors nor ${base}.safetensors.index.json is there`);
    }
  }
  #add(path: string): SafetensorsFile {
    const file = openSafetensors(path);
    this.#files.set(basename(path), file);
    for (const name of file.names) this.#where.set(name, file);
    return file;
  }
  #addShards(folder: string, index: string): void {
    let map: unknown;
    try {
      map = (JSON.parse(readFileSync(index, 'utf8')) as { weight_map?: unknown }).weight_map;
    } catch (error) {
      throw new SafetensorsError(`${index}: not valid JSON (${(error as Error).message})`);
    }
    if (!isRecord(map)) throw new SafetensorsError(`${index}: no weight_map`);
    for (const [name, shard] of Object.entries(map)) {
      if (typeof shard !== 'string' || basename(shard) !== shard) throw new SafetensorsError(`${index}: "${name}" points to ${JSON.stringify(shard)}`);
      const file = this.#files.get(shard) ?? this.#add(join(folder, shard));
      if (!file.has(name)) throw new SafetensorsError(`${index}: says "${name}" is in ${shard}, which has no such tensor`);
    }
  }
  get names(): string[] {
    return [...this.#where.keys()];
  }
  has(name: string): boolean {
    return this.#where.has(name);
  }
  info(name: string): TensorInfo {
    return this.#fileOf(name).info(name);
  }
  tensor(name: string): Tensor {
    return this.#fileOf(name).tensor(name);
  }
  #fileOf(name: string): SafetensorsFile {
    const file = this.#where.get(name);
    if (file === undefined) throw new SafetensorsError(`no tensor "${name}" in the checkpoint.${suggestion(name, this.#where.keys())}`);
    return file;
  }
  close(): void {
    for (const file of this.#files.values()) file.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}

/** Writes to a temporary file beside `path`, flushes it to the disk and renames it: a crash leaves the old file or the new one. */
export function writeSafetensors(path: string, tensors: Iterable<readonly [string, Tensor]>, metadata: Record<string, string> = { format: 'pt' }): void {
  const entries = [...tensors];
  const header: Record<string, unknown> = {};
  if (Object.keys(metadata).length > 0) header.__metadata__ = metadata;
  let offset = 0;
  for (const [name, tensor] of entries) {
    const code = toCode.get(tensor.dtype);
    if (code === undefined) throw new SafetensorsError(`${path}: tensor "${name}" is ${tensor.dtype}, which the format cannot hold`);
    if (Object.hasOwn(header, name)) throw new SafetensorsError(`${path}: two tensors are named "${name}"`);
    const bytes = tensor.numel * dtypeBytes[tensor.dtype];
    header[name] = { dtype: code, shape: tensor.shape, data_offsets: [offset, offset + bytes] };
    offset += bytes;
  }
  const json = JSON.stringify(header);
  const text = new TextEncoder().encode(json);
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(0x20); // so that the data starts aligned
  padded.set(text);
  const prefix = new Uint8Array(8);
  new DataView(prefix.buffer).setBigUint64(0, BigInt(padded.length), true);
  writeAtomically(path, (write) => {
    write(prefix);
    write(padded);
    for (const [, tensor] of entries) write(new Uint8Array(native.bytesOf(tensor.live('writing it'))));
  });
}

let temporaries = 0;

function writeAtomically(path: string, fill: (write: (bytes: Uint8Array) => void) => void): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}-${temporaries++}.tmp`);
  const file = openSync(temporary, 'w');
  try {
    fill((bytes) => {
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, Math.min(bytes.length - at, 2 ** 30));
    });
    fsyncSync(file);
  } catch (error) {
    closeSync(file);
    rmSync(temporary, { force: true });
    throw error;
  }
  closeSync(file);
  renameSync(temporary, path);
  const folder = openSync(dirname(path), 'r');
  fsyncSync(folder); // the rename itself must survive a power cut
  closeSync(folder);
}
