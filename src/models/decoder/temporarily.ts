/** Settings that hold while a function runs and are restored afterwards. */
import type { Decoder } from './decoder.ts';

/** Runs `body`, synchronous or not, and then `restore`, even if `body` fails. */
export function thenRestore<T>(body: () => T, restore: () => void): T {
  let result: T;
  try {
    result = body();
  } catch (error) {
    restore();
    throw error;
  }
  if (result instanceof Promise) return result.finally(restore) as T;
  restore();
  return result;
}

/** Runs `body`, synchronous or not, with products that may round their inputs (`QuantisedMatrix.multiplyFast`); without gradients. */
export function withFastProducts<T>(decoder: Decoder, body: () => T): T {
  const projections = [...decoder.projections()];
  for (const projection of projections) projection.fast = true;
  return thenRestore(body, () => {
    for (const projection of projections) projection.fast = false;
  });
}

/** Runs `body`, synchronous or not, with dropout off, then restores the decoder's mode. */
export function withoutDropout<T>(decoder: Decoder, body: () => T): T {
  const { training } = decoder;
  decoder.train(false);
  return thenRestore(body, () => decoder.train(training));
}
