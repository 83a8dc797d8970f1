/** Settings of the engine (threads, determinism, random numbers), and which libtorch and devices were found. */
import { totalmem } from 'node:os';
import type { Device } from './engine/dtype.ts';
import { attempt } from './engine/error.ts';
import { type CudaDevice, native } from './engine/native.ts';
import { Tensor } from './tensor.ts';

/** Sets how many CPU threads libtorch uses for one operator. */
export function setThreads(count: number): void {
  attempt('setThreads', () => native.setThreads(count), [count]);
}

/** How many CPU threads libtorch uses for one operator. */
export function threads(): number {
  return native.threads();
}

/** With `true`, libtorch uses deterministic algorithms only; an operator that has none throws. */
export function setDeterministic(value: boolean): void {
  attempt('setDeterministic', () => native.setDeterministic(value), [value]);
}

/** The precision of float32 matrix products on CUDA: `highest` is f32, `high` and `medium` may use TF32. */
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

/** Restores a state from `rngState`: the random numbers continue from there. */
export function setRngState(state: Uint8Array, device: Device = 'cpu'): void {
  using tensor = new Tensor(attempt('setRngState', () => native.fromBytes(state, 'uint8', [state.length])));
  attempt('setRngState', () => native.setRngState(device, tensor.handle), [tensor, device]);
}

/** What `engineInfo` found: libtorch's version and configuration, devices, threads. */
export interface EngineInfo {
  libtorch: string;
  cuda: boolean;
  /** Whether the CUDA kernels of native/cuda are compiled in. */
  kernels: boolean;
  devices: (CudaDevice | { name: 'cpu'; totalBytes: number })[];
  threads: number;
  config: string;
}

/** The libtorch in use and the devices it sees, as `attune doctor` prints them. */
export function engineInfo(): EngineInfo {
  const { libtorch, config, cuda, kernels } = native.info();
  const count = native.cudaCount();
  const devices: EngineInfo['devices'] = [{ name: 'cpu', totalBytes: totalmem() }];
  for (let i = 0; i < count; i++) devices.push(native.cudaDevice(i));
  return { libtorch, cuda: cuda && count > 0, kernels, devices, threads: native.threads(), config };
}

let kernels: boolean | undefined;

/** Whether the CUDA kernels of native/cuda are compiled in. */
export function hasCudaKernels(): boolean {
  kernels ??= native.info().kernels;
  return kernels;
}

/** The first GPU if there is one, else the CPU. */
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
