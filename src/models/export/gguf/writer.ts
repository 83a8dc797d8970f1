/** Writes a GGUF file: under a temporary name and then renamed, with one tensor in memory at a time. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import {
  aligned,
  layouts,
  MAGIC,
  type Metadata,
  type MetadataValue,
  type ScalarType,
  type TensorInfo,
  tensorBytes,
  VERSION,
  valueTypes,
} from './format.ts';

export interface TensorSource extends TensorInfo {
  /** Its data in pieces, in order; `tensorBytes` in all. */
  pieces(): Iterable<Uint8Array>;
}

/** Writes the file under a temporary name, runs `check` on it, and renames it; returns each tensor's CRC-32. */
export function writeGguf(
  path: string,
  metadata: Metadata,
  tensors: readonly TensorSource[],
  check: (written: string, sums: ReadonlyMap<string, number>) => void,
  onBytes: (bytes: number) => void = () => {},
): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  const sums = new Map<string, number>();
  const file = openSync(temporary, 'wx');
  let open = true;
  try {
    write(file, headerOf(metadata, tensors));
    for (const tensor of tensors) {
      sums.set(tensor.name, writeTensor(file, tensor, onBytes));
    }
    fsyncSync(file);
    closeSync(file);
    open = false;
    check(temporary, sums);
    renameSync(temporary, path);
  } catch (error) {
    if (open) closeSync(file);
    rmSync(temporary, { force: true });
    throw error;
  }
}

function writeTensor(file: number, tensor: TensorSource, onBytes: (bytes: number) => void): number {
  let sum = 0;
  let written = 0;
  for (const piece of tensor.pieces()) {
    write(file, piece);
    sum = crc32(piece, sum);
    written += piece.length;
    onBytes(piece.length);
  }
  const bytes = tensorBytes(tensor);
  if (written !== bytes) throw new Error(`tensor ${tensor.name} gave ${written} bytes where its shape says ${bytes}`);
  write(file, new Uint8Array(aligned(bytes) - bytes));
  return sum;
}

function write(file: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, Math.min(bytes.length - at, 2 ** 30));
}

function headerOf(metadata: Metadata, tensors: readonly TensorInfo[]): Uint8Array {
  const out = new Bytes();
  out.uint32(MAGIC).uint32(VERSION).uint64(tensors.length).uint64(metadata.size);
  for (const [key, value] of metadata) writeValue(out.string(key), value);
  let offset = 0;
  for (const tensor of tensors) {
    out.string(tensor.name).uint32(tensor.shape.length);
    for (const size of tensor.shape.toReversed()) out.uint64(size);
    out.uint32(layouts[tensor.type].code).uint64(offset);
    offset += aligned(tensorBytes(tensor));
  }
  return out.padded();
}

function writeValue(out: Bytes, value: MetadataValue): void {
  out.uint32(valueTypes.indexOf(value.type));
  if (value.type === 'array') {
    out.uint32(valueTypes.indexOf(value.of)).uint64(value.value.length);
    for (const item of value.value) writeScalar(out, value.of, item);
  } else writeScalar(out, value.type, value.value);
}

function writeScalar(out: Bytes, type: ScalarType, value: string | number | boolean): void {
  if (type === 'string') out.string(String(value));
  else if (type === 'bool') out.uint8(value ? 1 : 0);
  else out[type](Number(value));
}

/** A buffer that grows. */
class Bytes {
  #buffer = new ArrayBuffer(2 ** 16);
  #length = 0;

  #room(bytes: number): DataView {
    if (this.#length + bytes > this.#buffer.byteLength)
      this.#buffer = this.#buffer.transfer(Math.max(2 * this.#buffer.byteLength, this.#length + bytes));
    const view = new DataView(this.#buffer, this.#length, bytes);
    this.#length += bytes;
    return view;
  }
  uint8(value: number): this {
    this.#room(1).setUint8(0, value);
    return this;
  }
  uint32(value: number): this {
    this.#room(4).setUint32(0, value, true);
    return this;
  }
  int32(value: number): this {
    this.#room(4).setInt32(0, value, true);
    return this;
  }
  float32(value: number): this {
    this.#room(4).setFloat32(0, value, true);
    return this;
  }
  uint64(value: number): this {
    this.#room(8).setBigUint64(0, BigInt(value), true);
    return this;
  }
  string(text: string): this {
    const bytes = new TextEncoder().encode(text);
    this.uint64(bytes.length);
    const view = this.#room(bytes.length);
    new Uint8Array(view.buffer, view.byteOffset, bytes.length).set(bytes);
    return this;
  }
  padded(): Uint8Array {
    const length = this.#length;
    this.#room(aligned(length) - length);
    return new Uint8Array(this.#buffer, 0, this.#length);
  }
}
