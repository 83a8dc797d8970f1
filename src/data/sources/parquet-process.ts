/**
 * Decodes a Parquet file in a separate process (started by parquet.ts): a damaged file may need any amount of time and
 * memory, and running out of memory ends the process. Here it ends only this one.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import {
  type AsyncBuffer,
  type Compressors,
  parquetMetadataAsync,
  parquetReadObjects,
  snappyUncompress,
} from 'hyparquet';
import type { Row } from './row.ts';

/** Messages to the reader: rows from `start` on (from 0), the end, or a fault in the file. */
export type ParquetMessage = { rows: Row[]; start: number } | { done: true } | { fault: string };

// Some writers put a million rows in a row group; slices bound what is decoded at once.
const SLICE_ROWS = 4096;
const LARGEST_PAGE = 2 ** 30;

/** A snappy element expands to at most 64 bytes and takes at least two, which bounds the output. */
function unpackSnappy(bytes: Uint8Array, length: number): Uint8Array {
  if (!(length >= 0 && length <= 32 * bytes.length + 64)) throw new Error(`a page of ${length} bytes`);
  const output = new Uint8Array(length);
  snappyUncompress(bytes, output);
  return output;
}

const bounded = (unpack: (bytes: Uint8Array, options: { maxOutputLength: number }) => Uint8Array) => {
  return (bytes: Uint8Array, length: number) => {
    if (!(length >= 0 && length <= LARGEST_PAGE)) throw new Error(`a page of ${length} bytes`);
    return unpack(bytes, { maxOutputLength: Math.max(1, length) });
  };
};
const compressors: Compressors = {
  SNAPPY: unpackSnappy,
  GZIP: bounded(gunzipSync),
  ZSTD: bounded(zstdDecompressSync),
  BROTLI: bounded(brotliDecompressSync),
};

const text = new TextDecoder('utf-8', { fatal: true });
const parsers = { stringFromBytes: (bytes: Uint8Array) => (bytes === undefined ? undefined : text.decode(bytes)) };

async function* slices(file: AsyncBuffer): AsyncGenerator<{ rows: Row[]; start: number }> {
  const metadata = await parquetMetadataAsync(file);
  let groupStart = 0;
  for (const group of metadata.row_groups) {
    const groupRows = Number(group.num_rows);
    if (!(Number.isSafeInteger(groupRows) && groupRows >= 0)) throw new Error(`a row group of ${groupRows} rows`);
    for (let start = groupStart; start < groupStart + groupRows; start += SLICE_ROWS) {
      const end = Math.min(start + SLICE_ROWS, groupStart + groupRows);
      const range = { rowStart: start, rowEnd: end };
      const rows = await parquetReadObjects({ file, metadata, ...range, compressors, useOffsetIndex: true, parsers });
      if (rows.length !== end - start) throw new Error(`${rows.length} rows where ${end - start} are announced`);
      yield { rows: rows.map((row) => plain(row) as Row), start };
    }
    groupStart += groupRows;
  }
}

async function asyncBuffer(handle: FileHandle): Promise<AsyncBuffer> {
  const { size } = await handle.stat();
  return {
    byteLength: size,
    async slice(start: number, end = size) {
      if (!(start >= 0 && start <= end && end <= size)) throw new Error(`bytes ${start} to ${end} of ${size}`);
      const buffer = new ArrayBuffer(end - start);
      await handle.read(new Uint8Array(buffer), 0, buffer.byteLength, start);
      return buffer;
    },
  };
}

// 64-bit integers arrive as BigInt, which JSON and arithmetic with numbers refuse.
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === 'object' && value !== null && !(value instanceof Date) && !ArrayBuffer.isView(value)) {
    const result: Row = {};
    for (const [name, inner] of Object.entries(value)) result[name] = plain(inner);
    return result;
  }
  return value;
}

/** Resolves each time the reader asks for another slice; the decoder stays one slice ahead. */
function requests(): () => Promise<void> {
  let asked = 0;
  let wake: (() => void) | undefined;
  process.on('message', () => {
    asked++;
    wake?.();
  });
  return async () => {
    if (asked === 0) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    asked--;
  };
}

const [, , path] = process.argv;
if (process.send !== undefined && path !== undefined) {
  const send = (message: ParquetMessage) => process.send?.(message);
  const asked = requests();
  // The reader is gone.
  process.on('disconnect', () => process.exit());
  try {
    await using handle = await open(path, 'r');
    for await (const slice of slices(await asyncBuffer(handle))) {
      await asked();
      send(slice);
    }
    await asked();
    send({ done: true });
  } catch (error) {
    send({ fault: (error as Error).message });
  }
}
