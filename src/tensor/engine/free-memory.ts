import { freemem } from 'node:os';
import type { Device } from './dtype.ts';
import { native } from './native.ts';

/** Bytes that tensors can still take on a device: free memory of the system, and memory kept from freed tensors. */
export function freeBytes(device: Device): number {
  if (!device.startsWith('cuda')) return device === 'cpu' ? freemem() + native.keptSize() : Number.POSITIVE_INFINITY;
  const index = Number(device.split(':')[1] ?? 0);
  const { reserved, allocated } = native.cudaMemory(index);
  return native.cudaDevice(index).freeBytes + reserved - allocated;
}

const known = new Map<number, number>();

/** Bytes of a CUDA device's memory; 0 if there is no such device. */
export function cudaBytes(device: Device): number {
  if (!device.startsWith('cuda')) return 0;
  const index = Number(device.split(':')[1] ?? 0);
  if (!known.has(index)) known.set(index, index < native.cudaCount() ? native.cudaDevice(index).totalBytes : 0);
  return known.get(index) as number;
}
