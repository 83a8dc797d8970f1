/**
 * Reference log-probs of a whole dataset, computed once and cached on disk under a key of the reference's weights and
 * the tokens. Later runs with the same reference and data, even with another loss, read them instead of running the
 * reference.
 */
import { createHash, randomUUID } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import type { TokenRecord, TokenStore } from '../../data/index.ts';
import { tokenCacheFolder } from '../../data/tokens/tokenise.ts';
import { computeDealt } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { makeFolder } from '../../folder.ts';
import { type MicroBatchLimits, type PromptedResponse, responseLogprobs } from '../../models/decoder/responses.ts';
import type { Progress } from '../../progress.ts';
import type { Reference } from './reference.ts';

/** Precomputed reference log-probs by example number in the dataset. */
export type ReferenceTable = ReadonlyMap<number, readonly number[]>;

export interface CacheOptions {
  /** Folder of the tables. Default: beside the tokens in ATTUNE_CACHE or the user's cache. */
  folder?: string;
  /** Size of the reference's micro-batches. */
  limits?: MicroBatchLimits;
  progress?: Progress;
  signal?: AbortSignal;
}

const referenceCacheFolder = () => join(dirname(tokenCacheFolder()), 'reference');

const chunkRecords = 256;

/** Σ lpRef of each response. */
export function referenceLogprobs(
  reference: Reference,
  responses: readonly PromptedResponse[],
  limits?: MicroBatchLimits,
): number[] {
  return reference.use((model) => responseLogprobs(model.decoder, responses, limits));
}

/** The table of a store's examples, read from disk or computed and written. */
export async function referenceTable(
  store: Pick<TokenStore, 'length' | 'records' | 'totalTokens'>,
  reference: Reference,
  options: CacheOptions = {},
): Promise<{ table: ReferenceTable; cached: boolean }> {
  const { folder = referenceCacheFolder(), progress, signal, limits } = options;
  const hash = createHash('sha256').update(reference.fingerprint());
  const examples: { example: number; sequences: number }[] = [];
  for await (const records of chunks(store)) {
    for (const { example, sequences } of records) {
      examples.push({ example, sequences: sequences.length });
      for (const { ids, promptLength } of sequences) hash.update(`${ids.length} ${promptLength};`).update(ids);
    }
  }
  const count = examples.reduce((sum, { sequences }) => sum + sequences, 0);
  const path = join(folder, `${hash.digest('hex').slice(0, 32)}.bin`);
  const world = await joinWorld();
  const stored = await world.share(world.isFirst ? await readSums(path, count) : undefined);
  if (stored !== undefined) return { table: tableOf(examples, stored), cached: true };
  const sums = new Float64Array(count);
  const bar = progress?.start('reference log-probs', store.totalTokens, 'tokens');
  let at = 0;
  try {
    for await (const records of chunks(store)) {
      signal?.throwIfAborted();
      const responses: PromptedResponse[] = records.flatMap(({ sequences }) => sequences);
      const parts = dealtEvenly(responses);
      const compute = (part: readonly PromptedResponse[]) => referenceLogprobs(reference, part, limits);
      sums.set((await computeDealt(world, parts, lengthOf, compute)).flat(), at);
      at += responses.length;
      bar?.advance(responses.reduce((sum, { ids }) => sum + ids.length, 0));
      await nextTurn();
    }
  } finally {
    bar?.done();
  }
  if (world.isFirst) await writeSums(path, sums);
  return { table: tableOf(examples, sums), cached: false };
}

/** Cuts the responses into parts for the ranks. Neither the parts nor their numbers depend on the number of ranks. */
function dealtEvenly(responses: readonly PromptedResponse[]): PromptedResponse[][] {
  const size = 32;
  return Array.from({ length: Math.ceil(responses.length / size) }, (_, i) =>
    responses.slice(i * size, (i + 1) * size),
  );
}

const lengthOf = (part: readonly PromptedResponse[]) => part.reduce((sum, { ids }) => sum + ids.length, 0);

async function* chunks(store: Pick<TokenStore, 'length' | 'records'>): AsyncGenerator<TokenRecord[]> {
  for (let start = 0; start < store.length; start += chunkRecords) {
    const size = Math.min(chunkRecords, store.length - start);
    yield await store.records(Uint32Array.from({ length: size }, (_, i) => start + i));
  }
}

function tableOf(examples: readonly { example: number; sequences: number }[], sums: Float64Array): ReferenceTable {
  const table = new Map<number, readonly number[]>();
  let at = 0;
  for (const { example, sequences } of examples) {
    table.set(example, Array.from(sums.subarray(at, at + sequences)));
    at += sequences;
  }
  return table;
}

/** The sums; undefined if there is no file or its checksum is wrong. */
async function readSums(path: string, count: number): Promise<Float64Array | undefined> {
  const content = await readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (content === undefined || content.length !== count * 8 + 4) return undefined;
  const body = content.subarray(0, count * 8);
  if (content.readUInt32LE(count * 8) !== crc32(body)) return undefined;
  return new Float64Array(Uint8Array.from(body).buffer);
}

async function writeSums(path: string, sums: Float64Array): Promise<void> {
  const body = new Uint8Array(sums.buffer, sums.byteOffset, sums.byteLength);
  const check = Buffer.alloc(4);
  check.writeUInt32LE(crc32(body));
  makeFolder(dirname(path));
  const beside = `${path}.${randomUUID()}`;
  await writeFile(beside, Buffer.concat([body, check]));
  await rename(beside, path);
}
