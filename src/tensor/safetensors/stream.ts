/**
 * Writes a safetensors file whose tensors arrive one by one and in any order, so that they need not all be in memory.
 * The bytes are those that `writeSafetensors` would write.
 */
import { closeSync, fsyncSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type DType, dtypeBytes } from '../engine/dtype.ts';
import { native } from '../engine/native.ts';
import type { Tensor } from '../tensor.ts';
import { codeOf, SafetensorsError } from './header.ts';

export interface StreamedTensor {
  name: string;
  dtype: DType;
  shape: readonly number[];
}

export class SafetensorsStream implements Disposable {
  readonly #path: string;
  readonly #temporary: string;
  readonly #file: number;
  readonly #places = new Map<string, { offset: number; bytes: number }>();
  #finished = false;

  constructor(path: string, tensors: readonly StreamedTensor[], metadata: Record<string, string>) {
    const header: Record<string, unknown> = Object.create(null);
    if (Object.keys(metadata).length > 0) header.__metadata__ = metadata;
    let offset = 0;
    for (const { name, dtype, shape } of tensors) {
      const bytes = shape.reduce((product, size) => product * size, dtypeBytes[dtype]);
      header[name] = { dtype: codeOf(dtype), shape, data_offsets: [offset, offset + bytes] };
      this.#places.set(name, { offset, bytes });
      offset += bytes;
    }
    const text = new TextEncoder().encode(JSON.stringify(header));
    const start = 8 + Math.ceil(text.length / 8) * 8;
    const head = new Uint8Array(start).fill(0x20, 8);
    new DataView(head.buffer).setBigUint64(0, BigInt(start - 8), true);
    head.set(text, 8);
    for (const place of this.#places.values()) place.offset += start;
    this.#path = path;
    this.#temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
    this.#file = openSync(this.#temporary, 'w');
    ftruncateSync(this.#file, start + offset);
    this.#write(head, 0);
  }

  write(name: string, tensor: Tensor): void {
    const place = this.#places.get(name);
    const bytes = new Uint8Array(native.bytesOf(tensor.live('writing it')));
    if (place?.bytes !== bytes.length)
      throw new SafetensorsError(
        `${this.#path}: "${name}" has ${bytes.length} bytes, and ${place?.bytes} were announced`,
      );
    this.#write(bytes, place.offset);
    this.#places.delete(name);
  }

  #write(bytes: Uint8Array, offset: number): void {
    for (let at = 0; at < bytes.length; )
      at += writeSync(this.#file, bytes, at, Math.min(bytes.length - at, 2 ** 30), offset + at);
  }

  /** Moves the finished file into place; every tensor must have been written. */
  finish(): void {
    if (this.#places.size > 0)
      throw new SafetensorsError(`${this.#path}: "${[...this.#places.keys()][0]}" was not written`);
    fsyncSync(this.#file);
    closeSync(this.#file);
    renameSync(this.#temporary, this.#path);
    this.#finished = true;
  }

  [Symbol.dispose](): void {
    if (this.#finished) return;
    closeSync(this.#file);
    rmSync(this.#temporary, { force: true });
  }
}
