/** KL of a whole response, as SQL can sort by it. */
import type { DatabaseSync } from 'node:sqlite';

/**
 * The mean over a response's tokens of k3 (Schulman 2020): exp(d) − 1 − d with d = log-prob of the reference − log-prob of
 * the policy that sampled it. null where no reference was stored. The blobs are float32, as rollouts.db has them.
 */
export function meanKl(logprobs: unknown, references: unknown): number | null {
  if (!(logprobs instanceof Uint8Array) || !(references instanceof Uint8Array) || logprobs.length === 0) return null;
  const [own, other] = [floats(logprobs), floats(references)];
  let sum = 0;
  for (let t = 0; t < own.length; t++) sum += k3(own[t] as number, other[t] as number);
  return Number.isFinite(sum) ? sum / own.length : null;
}

export const k3 = (logprob: number, reference: number) => Math.expm1(reference - logprob) - (reference - logprob);

/** Makes `mean_kl(logprobs, ref_logprobs)` known to a connection. */
export function addMeanKl(database: DatabaseSync): void {
  database.function('mean_kl', { deterministic: true }, (logprobs, references) => meanKl(logprobs, references));
}

/** A blob may begin anywhere in its buffer: floats want a multiple of four. */
const floats = (bytes: Uint8Array) => new Float32Array(bytes.slice().buffer);
