/**
 * How precisely a model computes numbers that are not used in training: decoding (`Sampler`) and scoring
 * (`headOutputs`).
 */
import { type Device, engineInfo, hasCudaKernels } from '../tensor/index.ts';
import type { Model } from './model.ts';

/** The choices of `precision`. */
export const precisions = ['exact', 'fast'] as const;
/** How precise decoding is (`SamplerOptions`), or scoring (`RewardModelOptions`). */
export type Precision = (typeof precisions)[number];

/** Whether `fast` scores in 8 bits with this model on this machine; otherwise it is `exact`. */
export function scoresFast({ decoder }: Model): boolean {
  if (decoder.quantType !== 'int8' || decoder.dtype !== 'bfloat16' || decoder.device === 'cpu') return false;
  return hasCudaKernels() && capabilityOf(decoder.device) === '9.0';
}

const capabilities = new Map<Device, string>();

function capabilityOf(device: Device): string {
  const known = capabilities.get(device);
  if (known !== undefined) return known;
  const found = engineInfo().devices[1 + Number(device.split(':')[1] ?? 0)]; // the CPU comes first
  const capability = found !== undefined && 'capability' in found ? found.capability : '';
  capabilities.set(device, capability);
  return capability;
}
