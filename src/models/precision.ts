/** How precisely a model computes numbers that nobody trains on: decoding (`Sampler`) and scoring (`headOutputs`). */
import { UserError } from '../errors.ts';
import { engineInfo, hasCudaKernels } from '../tensor/index.ts';
import type { Model } from './model.ts';

/** The choices of `precision`. */
export const precisions = ['exact', 'fast'] as const;
/** How precise decoding is (`SamplerOptions`), or scoring (`RewardModelOptions`). */
export type Precision = (typeof precisions)[number];

export function checkPrecision(given: Precision | undefined): void {
  if (given !== undefined && !precisions.includes(given))
    throw new UserError(`precision ${given}: expected ${precisions.join(' or ')}.`);
}

/** Whether `fast` scores in 8 bits with this model on this machine; elsewhere it is `exact`. */
export function scoresFast({ decoder }: Model): boolean {
  if (decoder.quantType !== 'int8' || decoder.dtype !== 'bfloat16' || decoder.device === 'cpu') return false;
  const device = engineInfo().devices[1 + Number(decoder.device.split(':')[1] ?? 0)]; // after the CPU
  return hasCudaKernels() && device !== undefined && 'capability' in device && device.capability === '9.0';
}
