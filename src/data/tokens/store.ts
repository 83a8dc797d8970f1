/**
 * Token records on disk: one file of 32-bit integers and an index of where each record starts. Only the index is held
 * in memory. A store is written to a temporary folder and renamed, and its checksums are verified when it is opened:
 * after a crash or on a damaged disk it is rebuilt, and never gives wrong tokens.
 */
import { randomUUID } from 'node:crypto';
import { read } from 'node:fs';
import { type FileHandle, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { AttuneError, UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import type { Tally } from '../tally.ts';
import { packRecord, recordTokens, type TokenRecord, unpackRecord } from './record.ts';

const formatVersion = 1;
const flushBytes = 1 << 20;

interface StoreMeta {
  format: number;
  shape: string;
  records: number;
  tokens: number;
  bytes: number;
  tokensCrc: number;
  indexCrc: number;
  sources: string[];
  tally: ReturnType<Tally['toJSON']>;
}

/** A tokenised dataset on disk. */
export class TokenStore {
  readonly shape: string;
  readonly length: number;
  readonly totalTokens: number;
  readonly sources: readonly string[];
  /** What was read and what was left out while the store was made. */
  readonly tally: StoreMeta['tally'];
  /** Tokens of each record; for a pair, of both sequences together. */
  readonly lengths: Int32Array;
  /**
   * A hash of the tokens, their order and their boundaries. A resumed run compares it with the stored one to detect
   * that its data have changed.
   */
  readonly fingerprint: string;
  readonly #starts: Float64Array;
  readonly #file: FileHandle;

  private constructor(meta: StoreMeta, starts: Float64Array, lengths: Int32Array, file: FileHandle) {
    this.shape = meta.shape;
    this.length = meta.records;
    this.totalTokens = meta.tokens;
    this.sources = meta.sources;
    this.tally = meta.tally;
    this.fingerprint = [meta.records, meta.tokens, meta.tokensCrc, meta.indexCrc].map((n) => n.toString(16)).join('-');
    this.lengths = lengths;
    this.#starts = starts;
    this.#file = file;
  }

  /** The store in a folder; undefined if there is none, or if it is of another version, incomplete or damaged. */
  static async open(folder: string): Promise<TokenStore | undefined> {
    let file: FileHandle | undefined;
    try {
      const meta = JSON.parse(await readFile(join(folder, 'meta.json'), 'utf8')) as StoreMeta;
      if (meta.format !== formatVersion) return undefined;
      const index = await readFile(join(folder, 'index.bin'));
      if (index.length !== indexBytes(meta.records) || crc32(index) !== meta.indexCrc) return undefined;
      file = await open(join(folder, 'tokens.bin'), 'r');
      if ((await file.stat()).size !== meta.bytes || (await checksum(file)) !== meta.tokensCrc) {
        await file.close();
        return undefined;
      }
      const bytes = new Uint8Array(index).buffer;
      const starts = new Float64Array(bytes, 0, meta.records + 1);
      const lengths = new Int32Array(bytes, (meta.records + 1) * 8, meta.records);
      return new TokenStore(meta, starts, lengths, file);
    } catch (error) {
      await file?.close();
      const { code = '' } = error as NodeJS.ErrnoException;
      if (error instanceof SyntaxError || code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw error;
    }
  }

  /** Records by number, in the requested order. They share one buffer and are read in parallel, off this thread. */
  async records(indices: ArrayLike<number>): Promise<TokenRecord[]> {
    if (this.#file.fd < 0) throw new AttuneError('The token store is closed.');
    const spans = Array.from(indices, (index) => {
      if (!(Number.isInteger(index) && index >= 0 && index < this.length))
        throw new UserError(`The token store has ${this.length} records, from 0 on: there is none at ${index}.`);
      const start = this.#starts[index] as number;
      return { start, bytes: (this.#starts[index + 1] as number) - start };
    });
    const buffer = new ArrayBuffer(spans.reduce((sum, { bytes }) => sum + bytes, 0));
    let at = 0;
    const views = spans.map(({ bytes }) => {
      at += bytes;
      return new Int32Array(buffer, at - bytes, bytes / 4);
    });
    await new Promise<void>((resolve, reject) => {
      let open = spans.length;
      if (open === 0) resolve();
      for (const [place, { start, bytes }] of spans.entries()) {
        // The callback form costs a third of the promise form, and a batch needs dozens of reads.
        read(this.#file.fd, views[place] as Int32Array, 0, bytes, start, (error, count) => {
          if (error !== null) reject(error);
          else if (count !== bytes) reject(new AttuneError('The token store ended too early; was its folder changed?'));
          else if (--open === 0) resolve();
        });
      }
    });
    return views.map(unpackRecord);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function indexBytes(records: number): number {
  return (records + 1) * 8 + records * 4;
}

async function checksum(file: FileHandle): Promise<number> {
  const buffer = new Uint8Array(Math.min(flushBytes, (await file.stat()).size + 1));
  let crc = 0;
  let position = 0;
  while (true) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return crc;
    crc = crc32(buffer.subarray(0, bytesRead), crc);
    position += bytesRead;
  }
}

const unfinished = '.writing-';
const dayMs = 24 * 60 * 60 * 1000;

/** Removes the folders of processes that were killed while writing: none of their files has changed for a day. */
async function removeStale(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    if (!name.startsWith(unfinished)) continue;
    const path = join(cache, name);
    // Another process may remove it at the same time, or another user may own it.
    const found = await stat(join(path, 'tokens.bin')).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > dayMs)
      await rm(path, { recursive: true, force: true }).catch(() => {});
  }
}

/** Writes a store; `finish` renames it to its final place. */
export class TokenStoreWriter {
  readonly #folder: string;
  readonly #file: FileHandle;
  readonly #starts: number[] = [0];
  readonly #lengths: number[] = [];
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #bytes = 0;
  #tokens = 0;
  #crc = 0;

  private constructor(folder: string, file: FileHandle) {
    this.#folder = folder;
    this.#file = file;
  }

  static async create(place: string): Promise<TokenStoreWriter> {
    const folder = join(dirname(place), `${unfinished}${randomUUID()}`);
    makeFolder(folder);
    await removeStale(dirname(place));
    return new TokenStoreWriter(folder, await open(join(folder, 'tokens.bin'), 'w'));
  }

  get records(): number {
    return this.#lengths.length;
  }

  async add(record: TokenRecord): Promise<void> {
    const ints = packRecord(record);
    const bytes = new Uint8Array(ints.buffer, ints.byteOffset, ints.byteLength);
    const length = recordTokens(record);
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#bytes += bytes.length;
    this.#tokens += length;
    this.#starts.push(this.#bytes);
    this.#lengths.push(length);
    if (this.#pendingBytes >= flushBytes) await this.#flush();
  }

  /** Renames the store to `place`. If another process has just finished the same store, its copy is kept. */
  async finish(place: string, shape: string, sources: string[], tally: Tally): Promise<void> {
    await this.#flush();
    await this.#file.sync();
    await this.#file.close();
    const index = new Uint8Array(indexBytes(this.records));
    new Float64Array(index.buffer, 0, this.#starts.length).set(this.#starts);
    new Int32Array(index.buffer, this.#starts.length * 8).set(this.#lengths);
    await writeFile(join(this.#folder, 'index.bin'), index);
    const meta: StoreMeta = {
      format: formatVersion,
      shape,
      records: this.records,
      tokens: this.#tokens,
      bytes: this.#bytes,
      tokensCrc: this.#crc,
      indexCrc: crc32(index),
      sources,
      tally: tally.toJSON(),
    };
    await writeFile(join(this.#folder, 'meta.json'), JSON.stringify(meta));
    try {
      await rm(place, { recursive: true, force: true });
      await rename(this.#folder, place);
    } catch (error) {
      if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      await rm(this.#folder, { recursive: true, force: true });
    }
  }

  async discard(): Promise<void> {
    await this.#file.close().catch(() => {});
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #flush(): Promise<void> {
    const block = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#crc = crc32(block, this.#crc);
    await this.#file.write(block);
  }
}
