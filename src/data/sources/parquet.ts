/** Parquet, one row group at a time. Snappy comes with hyparquet; gzip, zstd and brotli from Node. */
import { type FileHandle, open } from 'node:fs/promises';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import {
  type AsyncBuffer,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  parquetReadObjects,
} from 'hyparquet';
import { UserError } from '../../errors.ts';
import type { BadRow, LocatedRow, Row } from './row.ts';

const compressors: Compressors = {
  GZIP: (bytes) => gunzipSync(bytes),
  ZSTD: (bytes) => zstdDecompressSync(bytes),
  BROTLI: (bytes) => brotliDecompressSync(bytes),
};

// Row groups of some writers hold a million rows; slices of this size bound what is decoded at once.
const sliceRows = 4096;

export async function* readParquet(path: string, _bad: BadRow): AsyncGenerator<LocatedRow> {
  let handle: FileHandle;
  try {
    handle = await open(path, 'r');
  } catch (error) {
    throw damaged(path, error);
  }
  try {
    const file = await asyncBuffer(handle);
    let metadata: FileMetaData;
    try {
      metadata = await parquetMetadataAsync(file);
    } catch (error) {
      throw damaged(path, error);
    }
    let groupStart = 0;
    for (const group of metadata.row_groups) {
      const groupEnd = groupStart + Number(group.num_rows);
      for (let rowStart = groupStart; rowStart < groupEnd; rowStart += sliceRows) {
        const rowEnd = Math.min(rowStart + sliceRows, groupEnd);
        let rows: Row[];
        try {
          rows = await parquetReadObjects({
            file,
            metadata,
            rowStart,
            rowEnd,
            compressors,
            useOffsetIndex: true,
            parsers,
          });
        } catch (error) {
          throw damaged(path, error);
        }
        for (let i = 0; i < rows.length; i++) {
          yield { row: plain(rows[i]) as Row, file: path, line: rowStart + i + 1 };
        }
      }
      groupStart = groupEnd;
    }
  } finally {
    await handle.close();
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true });
const parsers = { stringFromBytes: (bytes: Uint8Array) => (bytes === undefined ? undefined : decoder.decode(bytes)) };

async function asyncBuffer(handle: FileHandle): Promise<AsyncBuffer> {
  const { size } = await handle.stat();
  return {
    byteLength: size,
    async slice(start: number, end = size) {
      const buffer = new ArrayBuffer(Math.max(0, end - start));
      await handle.read(new Uint8Array(buffer), 0, buffer.byteLength, start);
      return buffer;
    },
  };
}

// 64-bit integers arrive as BigInt, which neither JSON nor arithmetic with numbers takes.
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

function damaged(path: string, error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return new UserError(`${path}: no such file.`);
  return new UserError(`${path}: not a readable parquet file (${message}). Fetch the file again.`);
}
