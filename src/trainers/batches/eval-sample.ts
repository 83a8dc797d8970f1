/**
 * The held-out batches of an evaluation, the same at every evaluation. A set no larger than the requested sample is
 * evaluated whole, each example once. From a larger set, examples are drawn with replacement under a separate seed.
 */
import { type Batch, packBatch, type TokenStore } from '../../data/index.ts';
import { Random } from '../../random.ts';

export interface EvalSampleOptions {
  batchSize: number;
  batches: number;
  seed: number;
}

export async function evalSample(store: TokenStore, options: EvalSampleOptions): Promise<Batch[]> {
  if (store.length <= options.batches * options.batchSize) return Array.fromAsync(allBatches(store, options.batchSize));
  const random = new Random(options.seed, 0);
  const sample: Batch[] = [];
  for (let i = 0; i < options.batches; i++) {
    const indices = Array.from({ length: options.batchSize }, () => random.int(0, store.length - 1));
    sample.push(packBatch(await store.records(indices)));
  }
  return sample;
}

/** Each record once, in order, up to a limit. */
export async function* allBatches(
  store: TokenStore,
  batchSize: number,
  most = Number.POSITIVE_INFINITY,
): AsyncGenerator<Batch> {
  const count = Math.min(store.length, most);
  for (let start = 0; start < count; start += batchSize) {
    const size = Math.min(batchSize, count - start);
    yield packBatch(await store.records(Array.from({ length: size }, (_, i) => start + i)));
  }
}
