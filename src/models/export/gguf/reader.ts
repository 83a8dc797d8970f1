/**
 * Reads a GGUF file: its metadata, its table of tensors, and their values. Every length in the file is checked against the
 * file's size before it is used.
 *
 *     using file = openGguf('m.gguf');
 *     file.metadata.get('general.architecture');       // 'qwen3'
 *     file.values('blk.0.attn_q.weight');              // Float32Array
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { UserError } from '../../../errors.ts';
import { decodeBlocks } from './blocks.ts';
import {
  ALIGNMENT,
  aligned,
  layouts,
  MAGIC,
  type TensorInfo,
  type TensorType,
  tensorBytes,
  tensorTypes,
  valueTypes,
} from './format.ts';

export type PlainValue = string | number | bigint | boolean | PlainValue[];

export interface StoredTensor extends TensorInfo {
  /** From the beginning of the file. */
  start: number;
  bytes: number;
}

/** An open GGUF file: its metadata and its tensors. */
export interface GgufFile extends Disposable {
  path: string;
  metadata: Map<string, PlainValue>;
  tensors: Map<string, StoredTensor>;
  /** The bytes of a tensor, from `offset` on. */
  read(tensor: StoredTensor, offset: number, count: number): Uint8Array;
  /** A tensor's values as f32. */
  values(name: string): Float32Array;
}

const MAX_RANK = 4;
const PAGE = 2 ** 20;

/** Opens a GGUF file and checks its header. */
export function openGguf(path: string): GgufFile {
  const file = openSync(path, 'r');
  try {
    const size = fstatSync(file).size;
    const { metadata, tensors } = readHeader(new Cursor(file, size, path));
    const read = (tensor: StoredTensor, offset: number, count: number) => readAt(file, tensor.start + offset, count);
    return {
      path,
      metadata,
      tensors,
      read,
      values(name) {
        const tensor = tensors.get(name);
        if (tensor === undefined) throw new UserError(`${path}: there is no tensor "${name}".`);
        return valuesOf(read(tensor, 0, tensor.bytes), tensor.type);
      },
      [Symbol.dispose]: () => closeSync(file),
    };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

function readHeader(at: Cursor): { metadata: Map<string, PlainValue>; tensors: Map<string, StoredTensor> } {
  if (at.uint32('the magic number') !== MAGIC) at.fail('it does not begin with "GGUF"; this is not a GGUF file');
  const version = at.uint32('the version');
  if (version !== 2 && version !== 3) at.fail(`it is of version ${version}; versions 2 and 3 are read`);
  const tensorCount = at.count('the number of tensors', 24);
  const pairs = at.count('the number of metadata pairs', 13);
  const metadata = new Map<string, PlainValue>();
  for (let i = 0; i < pairs; i++) {
    const key = at.string(`key ${i}`);
    if (metadata.has(key)) at.fail(`the key "${key}" is there twice`);
    metadata.set(key, at.value(key));
  }
  const infos = Array.from({ length: tensorCount }, (_, i) => readInfo(at, i));
  const alignment = Number(metadata.get('general.alignment') ?? ALIGNMENT);
  if (!Number.isInteger(alignment) || alignment <= 0) at.fail(`general.alignment is ${alignment}`);
  const data = aligned(at.position, alignment);
  const tensors = new Map<string, StoredTensor>();
  for (const { offset, ...info } of infos) {
    const bytes = tensorBytes(info);
    const start = data + offset;
    if (tensors.has(info.name)) at.fail(`the tensor "${info.name}" is there twice`);
    if (offset % alignment !== 0)
      at.fail(`the tensor "${info.name}" does not lie on the alignment of ${alignment} bytes`);
    if (start + bytes > at.size)
      at.fail(
        `the tensor "${info.name}" would end at byte ${start + bytes}, but the file has ${at.size}: it is cut short`,
      );
    tensors.set(info.name, { ...info, start, bytes });
  }
  return { metadata, tensors };
}

function readInfo(at: Cursor, index: number): TensorInfo & { offset: number } {
  const name = at.string(`the name of tensor ${index}`);
  const rank = at.uint32(`the rank of "${name}"`);
  if (rank < 1 || rank > MAX_RANK) at.fail(`the tensor "${name}" has ${rank} dimensions`);
  const shape = Array.from({ length: rank }, () => at.uint64(`the shape of "${name}"`)).reverse();
  const code = at.uint32(`the type of "${name}"`);
  const type = tensorTypes.find((candidate) => layouts[candidate].code === code);
  if (type === undefined) at.fail(`the tensor "${name}" is of type ${code}; ${tensorTypes.join(', ')} are read`);
  const { blockValues } = layouts[type];
  if (shape.some((size) => size < 1) || (shape.at(-1) as number) % blockValues !== 0)
    at.fail(`the tensor "${name}" is [${shape}], which ${type} cannot hold`);
  return { name, shape, type, offset: at.uint64(`the offset of "${name}"`) };
}

function valuesOf(bytes: Uint8Array, type: TensorType): Float32Array {
  if (type === 'q8_0' || type === 'q4_0') return decodeBlocks(bytes, type);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  if (type === 'f32') return new Float32Array(buffer);
  if (type === 'f16') return Float32Array.from(new Float16Array(buffer));
  const wide = Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16);
  return new Float32Array(wide.buffer);
}

function readAt(file: number, position: number, count: number): Uint8Array {
  const out = new Uint8Array(count);
  for (let got = 0; got < count; ) {
    const read = readSync(file, out, got, count - got, position + got);
    if (read === 0) throw new Error(`the file ended at byte ${position + got}`);
    got += read;
  }
  return out;
}

/** Reads the header from front to back, a page at a time; a file that ends too soon is an error that says where. */
class Cursor {
  position = 0;
  readonly size: number;
  readonly #file: number;
  readonly #path: string;
  #page: DataView = new DataView(new ArrayBuffer(0));
  #pageStart = 0;

  constructor(file: number, size: number, path: string) {
    this.#file = file;
    this.size = size;
    this.#path = path;
  }

  fail(message: string): never {
    throw new UserError(`${this.#path}: ${message}.`);
  }

  #take(bytes: number, what: string): { view: DataView; at: number } {
    if (bytes > this.size - this.position)
      this.fail(
        `the file ends inside ${what} (byte ${this.position} of ${this.size}): it is cut short or not a GGUF file`,
      );
    const end = this.#pageStart + this.#page.byteLength;
    if (this.position < this.#pageStart || this.position + bytes > end) {
      const count = Math.min(Math.max(PAGE, bytes), this.size - this.position);
      this.#page = new DataView(readAt(this.#file, this.position, count).buffer);
      this.#pageStart = this.position;
    }
    const at = this.position - this.#pageStart;
    this.position += bytes;
    return { view: this.#page, at };
  }

  uint32(what: string): number {
    const { view, at } = this.#take(4, what);
    return view.getUint32(at, true);
  }
  uint64(what: string): number {
    const { view, at } = this.#take(8, what);
    const value = view.getBigUint64(at, true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.fail(`${what} is ${value}`);
    return Number(value);
  }
  /** Reads how many entries follow, each of at least `entryBytes`; more than fit the file is an error. */
  count(what: string, entryBytes: number): number {
    const value = this.uint64(what);
    if (value * entryBytes > this.size - this.position) this.fail(`${what} is ${value}, more than the file can hold`);
    return value;
  }
  string(what: string): string {
    const length = this.uint64(`the length of ${what}`);
    const { view, at } = this.#take(length, what);
    return new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset + at, length));
  }

  value(key: string): PlainValue {
    return this.#valueOf(this.#type(key), key, 0);
  }
  #type(key: string): (typeof valueTypes)[number] {
    const code = this.uint32(`the type of "${key}"`);
    return valueTypes[code] ?? this.fail(`"${key}" is of the unknown type ${code}`);
  }
  #valueOf(type: (typeof valueTypes)[number], key: string, depth: number): PlainValue {
    const what = `the value of "${key}"`;
    const take = (bytes: number) => this.#take(bytes, what);
    if (type === 'string') return this.string(what);
    if (type === 'array') {
      if (depth > 1) this.fail(`"${key}" holds arrays of arrays of arrays`);
      const of = this.#type(key);
      const count = this.count(`the length of "${key}"`, sizes[of]);
      return Array.from({ length: count }, () => this.#valueOf(of, key, depth + 1));
    }
    const { view, at } = take(sizes[type]);
    switch (type) {
      case 'bool':
        return view.getUint8(at) !== 0;
      case 'uint8':
        return view.getUint8(at);
      case 'int8':
        return view.getInt8(at);
      case 'uint16':
        return view.getUint16(at, true);
      case 'int16':
        return view.getInt16(at, true);
      case 'uint32':
        return view.getUint32(at, true);
      case 'int32':
        return view.getInt32(at, true);
      case 'float32':
        return view.getFloat32(at, true);
      case 'float64':
        return view.getFloat64(at, true);
      case 'uint64':
        return view.getBigUint64(at, true);
      case 'int64':
        return view.getBigInt64(at, true);
    }
  }
}

/** The least bytes that a value of each type takes. */
const sizes: Record<(typeof valueTypes)[number], number> = {
  ...{ uint8: 1, int8: 1, uint16: 2, int16: 2, uint32: 4, int32: 4, float32: 4, bool: 1, string: 8, array: 12 },
  ...{ uint64: 8, int64: 8, float64: 8 },
};
