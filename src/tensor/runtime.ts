/** The engine around the tensors: threads, determinism, random numbers, what was found. */
import { totalmem } from 'node:os';
import type { Device } from './engine/dtype.ts';
import { attempt } from './engine/error.ts';
import { type CudaDevice, native } from './engine/native.ts';
import { Tensor } from './tensor.ts';

export function setThreads(count: number): void {
  attempt('setThreads', () => native.setThreads(count), [count]);
}
export function threads(): number {
  return native.threads();
}
/** Operators that have no deterministic form then refuse to run. */
export function setDeterministic(value: boolean): void {
  attempt('setDeterministic', () => native.setDeterministic(value), [value]);
}
/** float32 matrix products: `highest` is exact f32, `high` may use TF32 on CUDA. */
export function setMatmulPrecision(precision: 'highest' | 'high' | 'medium'): void {
  attempt('setMatmulPrecision', () => native.setMatmulPrecision(precision), [precision]);
}

/** Seeds the CPU's generator and every CUDA device's. */
export function seed(value: number): void {
  attempt('seed', () => native.seed('cpu', value), [value]);
  for (let i = 0; i < native.cudaCount(); i++) native.seed(`cuda:${i}`, value);
}

/** The state of a device's random generator, as bytes that can be stored. */
export function rngState(device: Device = 'cpu'): Uint8Array {
  using state = new Tensor(attempt('rngState', () => native.rngState(device), [device]));
  return state.data() as Uint8Array;
}
export function setRngState(state: Uint8Array, device: Device = 'cpu'): void {
  using tensor = new Tensor(attempt('setRngState', () => native.fromBytes(state, 'uint8', [state.length])));
  attempt('setRngState', () => native.setRngState(device, tensor.handle), [tensor, device]);
}

export interface EngineInfo {
  libtorch: string;
  cuda: boolean;
  /** Our own CUDA kernels are compiled in. */
  kernels: boolean;
  devices: (CudaDevice | { name: 'cpu'; totalBytes: number })[];
  threads: number;
  config: string;
}

export function engineInfo(): EngineInfo {
  const { libtorch, config, cuda, kernels } = native.info();
  const count = native.cudaCount();
  const devices: EngineInfo['devices'] = [{ name: 'cpu', totalBytes: totalmem() }];
  for (let i = 0; i < count; i++) devices.push(native.cudaDevice(i));
  return { libtorch, cuda: cuda && count > 0, kernels, devices, threads: native.threads(), config };
}

/** `cuda` where there is one, else `cpu`. */
export function defaultDevice(): Device {
  return native.cudaCount() > 0 ? 'cuda:0' : 'cpu';
}

/** [major, minor] of the libtorch in use. */
export function libtorchVersion(): [number, number] {
  const [major, minor] = native
    .info()
    .libtorch.split('.')
    .map((part) => Number.parseInt(part, 10));
  return [major ?? 0, minor ?? 0];
}
