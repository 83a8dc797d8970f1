/** Writing safetensors files. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { dtypeBytes } from '../engine/dtype.ts';
import { attempt } from '../engine/error.ts';
import { native } from '../engine/native.ts';
import type { Tensor } from '../tensor.ts';
import { codeOf, SafetensorsError } from './header.ts';

/**
 * Writes tensors as one safetensors file: to a temporary file beside `path`, flushed to the disk and renamed, so that a crash
 * leaves the old file or the new one.
 */
export function writeSafetensors(
  path: string,
  tensors: Iterable<readonly [string, Tensor]>,
  metadata: Record<string, string> = { format: 'pt' },
): void {
  const entries = [...tensors];
  const header: Record<string, unknown> = Object.create(null); // a tensor may be called "__proto__"
  if (Object.keys(metadata).length > 0) header.__metadata__ = metadata;
  let offset = 0;
  for (const [name, tensor] of entries) {
    const code = codeOf(tensor.dtype);
    if (name === '__metadata__' || !name.isWellFormed())
      throw new SafetensorsError(`${path}: a tensor cannot be named ${JSON.stringify(name)}`);
    if (code === undefined)
      throw new SafetensorsError(`${path}: tensor "${name}" is ${tensor.dtype}, which the format cannot hold`);
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
    for (const [, tensor] of entries)
      write(new Uint8Array(attempt('writeSafetensors', () => native.bytesOf(tensor.live('writing it')), [tensor])));
  });
}

let temporaries = 0;

function opened(path: string, temporary: string): number {
  try {
    return openSync(temporary, 'w');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error;
    throw new SafetensorsError(`${path}: there is no folder ${dirname(path)}`, { cause: error });
  }
}

function writeAtomically(path: string, fill: (write: (bytes: Uint8Array) => void) => void): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}-${temporaries++}.tmp`);
  const file = opened(path, temporary);
  try {
    fill((bytes) => {
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, Math.min(bytes.length - at, 2 ** 30));
    });
    fsyncSync(file);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
  const folder = openSync(dirname(path), 'r');
  fsyncSync(folder); // the rename itself must survive a power cut
  closeSync(folder);
}
