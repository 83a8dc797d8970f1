/** Reads a file as a stream of bytes, decompressed; memory does not grow with the file. */
import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { type Duplex, pipeline } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { UserError } from '../../errors.ts';

const chunkBytes = 1 << 18;

/** The size of a regular file. Pipes and devices are refused: they may never end. */
export async function regularFileSize(path: string): Promise<number> {
  const found = await stat(path).catch((error) => {
    throw readError(path, error);
  });
  if (found.isFile()) return found.size;
  throw new UserError(`${path}: ${found.isDirectory() ? 'a folder' : 'not a regular file'}; data are read from files.`);
}

/** The bytes of a file as a stream, decompressed if it is .gz or .zst. */
export async function* fileBytes(path: string): AsyncGenerator<Buffer> {
  await regularFileSize(path);
  const unpacker = await unpackerFor(path);
  const file = createReadStream(path, { highWaterMark: chunkBytes });
  const stream = unpacker === undefined ? file : pipeline(file, unpacker, () => {});
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } catch (error) {
    throw readError(path, error);
  }
}

// The first bytes decide, not the name: a hub may serve a .gz file already decompressed.
async function unpackerFor(path: string): Promise<Duplex | undefined> {
  const magic = Buffer.alloc(4);
  try {
    await using handle = await open(path, 'r');
    await handle.read(magic, 0, 4, 0);
  } catch (error) {
    throw readError(path, error);
  }
  if (magic[0] === 0x1f && magic[1] === 0x8b) return createGunzip({ chunkSize: chunkBytes });
  if (magic.readUInt32LE(0) === 0xfd2fb528) return createZstdDecompress({ chunkSize: chunkBytes });
  return undefined;
}

function readError(path: string, error: unknown): Error {
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return new UserError(`${path}: no such file.`);
  if (code === 'EACCES') return new UserError(`${path}: no permission to read it.`);
  if (code === 'Z_BUF_ERROR' || code === 'ZSTD_error_srcSize_wrong' || /unexpected end/i.test(message)) {
    return new UserError(`${path}: the compressed data end too early (a broken download?). Fetch the file again.`);
  }
  if (code.startsWith('Z_') || code.startsWith('ZSTD_')) {
    return new UserError(`${path}: the compressed data are damaged (${message}). Fetch the file again.`);
  }
  return error instanceof Error ? error : new Error(message);
}
