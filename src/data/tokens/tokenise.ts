/**
 * Tokenises a dataset once. The result is cached on disk under a key of the content, the tokenizer and the options.
 *
 *     await using tokens = await tokenise(pairs, tokenizer, { maxLength: 2048 });
 *     for await (const batch of new Batches(tokens, { batchSize: 32, seed: 42 })) …
 */
import { createHash, randomUUID } from 'node:crypto';
import { accessSync, constants } from 'node:fs';
import { rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { AttuneError, checkNames, UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import type { Progress } from '../../progress.ts';
import type { TextTokenizer } from '../../text/chat-format.ts';
import type { Dataset } from '../dataset.ts';
import type { ExampleOf, Shape } from '../shapes/shapes.ts';
import { Tally } from '../tally.ts';
import { type Encoded, type EncodeOptions, ExampleEncoder } from './encode.ts';
import { TokenStore, TokenStoreWriter } from './store.ts';

/** How examples are encoded, and where the result is cached. */
export interface TokeniseOptions extends EncodeOptions {
  /** Where stores are kept; `false` keeps nothing. Default: ATTUNE_CACHE, else attune's folder in the user's cache. */
  cache?: string | false;
  progress?: Progress;
  signal?: AbortSignal;
}

const chunkExamples = 512;
const optionNames: Record<keyof TokeniseOptions, true> = {
  ...{ cache: true, progress: true, signal: true, format: true, templateVariables: true },
  ...{ maxLength: true, maxPromptLength: true, maxResponseLength: true, stepSeparator: true },
};

/** Tokenises a dataset, or opens the cached result. */
export async function tokenise<S extends Shape>(
  dataset: Dataset<S>,
  tokenizer: TextTokenizer,
  options: TokeniseOptions = {},
): Promise<TokenStore> {
  checkNames('tokenise', options, Object.keys(optionNames));
  const { cache = tokenCacheFolder(), progress, signal, ...encoding } = options;
  const content = cache === false ? undefined : await dataset.fingerprint();
  if (cache === false || content === undefined) {
    const place = join(tmpdir(), `attune-tokens-${randomUUID()}`);
    try {
      return await build(dataset, tokenizer, options, place);
    } finally {
      // An open file stays readable after it is removed, and a crash leaves nothing behind.
      await rm(place, { recursive: true, force: true });
    }
  }
  const parts = [content, await dataset.shape(), tokenizer.fingerprint, encoding];
  const place = join(cache, createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32));
  const cached = await TokenStore.open(place);
  if (cached !== undefined) return cached;
  checkCache(cache);
  return build(dataset, tokenizer, options, place);
}

/** Users rarely choose this folder themselves, so its error says what it is and how to choose another. */
function checkCache(cache: string): void {
  try {
    makeFolder(cache);
    accessSync(cache, constants.W_OK);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const why = { EROFS: 'the disk is read-only', EACCES: 'permission denied' }[code] ?? (error as Error).message;
    throw new UserError(
      `The cache of tokens, ${cache}, cannot be written: ${why.replace(/\.$/, '')}. Name another folder by the variable ATTUNE_CACHE.`,
    );
  }
}

/** The folder of cached token stores. */
export function tokenCacheFolder(): string {
  const { ATTUNE_CACHE, XDG_CACHE_HOME } = process.env;
  if (ATTUNE_CACHE) return join(ATTUNE_CACHE, 'tokens');
  return join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'attune', 'tokens');
}

async function build<S extends Shape>(
  dataset: Dataset<S>,
  tokenizer: TextTokenizer,
  options: TokeniseOptions,
  place: string,
): Promise<TokenStore> {
  const shape = await dataset.shape();
  const encoder = new ExampleEncoder(tokenizer, shape, options);
  const writer = await TokenStoreWriter.create(place);
  const task = options.progress?.start(`tokenising ${dataset.name}`, undefined, 'examples');
  const dropped = new Tally();
  try {
    for await (const results of encodedChunks(dataset, encoder)) {
      options.signal?.throwIfAborted();
      for (const result of results) {
        if ('dropped' in result) dropped.drop(result.dropped);
        else for (const record of result.records) await writer.add(record);
      }
      task?.advance(results.length);
    }
    const tally = mergedTally(dataset.tally, dropped);
    if (writer.records === 0) throw allDropped(dataset.name, dropped, options);
    await writer.finish(place, shape, encoder.sources, tally);
  } catch (error) {
    await writer.discard();
    throw error;
  } finally {
    task?.done();
  }
  const store = await TokenStore.open(place);
  if (store === undefined) throw new AttuneError(`${place}: the tokens just written cannot be read back.`);
  return store;
}

/** Reads the rows of the next chunk while the tokenizer works on this one. */
async function* encodedChunks<S extends Shape>(
  dataset: Dataset<S>,
  encoder: ExampleEncoder<S>,
): AsyncGenerator<Encoded[]> {
  let ahead: Promise<Encoded[]> | undefined;
  let chunk: ExampleOf[S][] = [];
  for await (const example of dataset) {
    chunk.push(example);
    if (chunk.length < chunkExamples) continue;
    const started = encoder.encode(chunk);
    // A failure is reported when this chunk is awaited, not as an unhandled rejection before.
    started.catch(() => {});
    chunk = [];
    if (ahead !== undefined) yield await ahead;
    ahead = started;
  }
  if (ahead !== undefined) yield await ahead;
  if (chunk.length > 0) yield await encoder.encode(chunk);
}

function mergedTally(read: Tally, encoded: Tally): Tally {
  const tally = new Tally();
  tally.rows = read.rows;
  tally.badRows = read.badRows;
  tally.examples = read.examples - encoded.totalDropped;
  Object.assign(tally.dropped, read.dropped, encoded.dropped);
  return tally;
}

function allDropped(name: string, dropped: Tally, options: TokeniseOptions): UserError {
  const tooLong = dropped.dropped['too long'] ?? 0;
  if (tooLong > 0) {
    return new UserError(
      `${name}: all ${tooLong} examples are longer than ${options.maxLength} tokens. Raise --max-length (no further than the model has positions), or take shorter ones.`,
    );
  }
  return new UserError(`${name}: no example gave any tokens.`);
}
