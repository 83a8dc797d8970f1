/** Plans the size of a sampler's cache for its requests: known, and bounded, before anything starts. */
import { UserError } from '../../errors.ts';
import type { Decoder } from '../decoder/decoder.ts';
import {
  BLOCK,
  blocksFor,
  blocksInFlight,
  blocksWithin,
  type CacheDtype,
  type CacheKind,
  type CacheSize,
  cacheBytes,
  checkFits,
  mostSlots,
} from './cache/cache.ts';
import type { GenerationRequest } from './request.ts';

/** The bounds of a sampler's cache: SamplerOptions explains each. */
interface CacheBounds {
  slots?: number;
  maxLength?: number;
  maxCacheBytes?: number;
  reusePrefixes?: boolean;
  cacheDtype?: CacheDtype;
}

const kindOf = ({ dtype, device }: Decoder, { cacheDtype = 'model' }: CacheBounds): CacheKind => ({
  dtype,
  device,
  cacheDtype,
});

/** Refuses a bound that is too small for even one block. */
export function checkCacheBound(decoder: Decoder, bounds: CacheBounds): void {
  const { maxCacheBytes } = bounds;
  const least = cacheBytes(decoder.spec, { blocks: 1 }, kindOf(decoder, bounds));
  if (maxCacheBytes !== undefined && !(maxCacheBytes >= least))
    throw new UserError(
      `A cache of ${maxCacheBytes} bytes holds nothing: the least, ${BLOCK} tokens, takes ${least} bytes.`,
    );
}

/** The cache for these requests. `held`: bytes that are freed before it is allocated. Throws if it does not fit. */
export function plannedCache(
  decoder: Decoder,
  bounds: CacheBounds,
  requests: readonly GenerationRequest[],
  held: number,
): CacheSize & { bytes: number } {
  const needed = mostPositions(requests);
  const responses = requests.reduce((sum, request) => sum + (request.samples ?? 1), 0);
  const length = bounds.maxLength ?? Math.ceil(needed / BLOCK) * BLOCK;
  const kind = kindOf(decoder, bounds);
  const most = mostSlots(decoder.spec, length, kind);
  const slots = bounds.slots ?? (bounds.reusePrefixes ? most : Math.max(1, Math.min(most, responses)));
  if (needed > length)
    throw new UserError(`A prompt with its new tokens needs ${needed} places; this sampler has ${length} (maxLength).`);
  if (requests.some((request) => request.prompt.length === 0))
    throw new UserError('A prompt needs at least one token.');
  decoder.checkLength(needed);
  const blocks = blocksOf(decoder, bounds, requests, slots, length);
  if (blocksFor(needed) > blocks)
    throw new UserError(
      `A prompt with its new tokens needs ${needed} places; a cache of ${bounds.maxCacheBytes} bytes (maxCacheBytes) has ${blocks * BLOCK}. ` +
        'Ask for fewer new tokens, or allow a larger cache.',
    );
  const size = { slots, length: Math.min(length, blocks * BLOCK), blocks };
  const bytes = cacheBytes(decoder.spec, size, kind);
  checkFits(size, bytes, decoder.device, held);
  return { ...size, bytes };
}

/** How many sequences of this length are written at the same time for this many responses. */
export const slotsFor = (decoder: Decoder, bounds: CacheBounds, responses: number, length: number): number =>
  Math.max(1, Math.min(responses, bounds.slots ?? mostSlots(decoder.spec, length, kindOf(decoder, bounds))));

/** The blocks of the cache: enough for everything in flight at the same time, within `maxCacheBytes`. */
function blocksOf(
  decoder: Decoder,
  bounds: CacheBounds,
  requests: readonly GenerationRequest[],
  slots: number,
  length: number,
): number {
  const { maxLength, reusePrefixes = false, maxCacheBytes = Number.POSITIVE_INFINITY } = bounds;
  const most = slots * blocksFor(length);
  // a service, or a caller that gives the sequence length, gets room for any requests
  const needed = reusePrefixes || maxLength !== undefined ? most : blocksInFlight(requests, slots);
  // In steps, so that requests of nearly the same lengths do not need a new cache each time.
  const step = Math.max(1, Math.ceil(most / 16));
  return Math.min(
    most,
    Math.ceil(needed / step) * step,
    blocksWithin(decoder.spec, maxCacheBytes, kindOf(decoder, bounds)),
  );
}

/** Positions of the longest sequence that these requests can produce. */
const mostPositions = (requests: readonly GenerationRequest[]): number =>
  requests.reduce((most, { prompt, maxNewTokens }) => Math.max(most, prompt.length + maxNewTokens), 1);
