/** A hash of weights, for cache keys. */
import { createHash } from 'node:crypto';
import { scope, type Tensor } from '../../tensor/index.ts';

/** Over names, dtypes, shapes and bytes. */
export function weightsFingerprint(weights: Iterable<readonly [string, Tensor]>): string {
  const hash = createHash('sha256');
  for (const [name, weight] of weights) {
    hash.update(`${name} ${weight.dtype} ${weight.shape};`);
    const bytes = scope(() => weight.detach().cpu().contiguous().data());
    hash.update(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  }
  return hash.digest('hex');
}
