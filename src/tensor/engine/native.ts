/**
 * The compiled addon (native/), loaded on first use: libtorch takes half a second, which `--help` and commands without
 * tensors do not need. Only src/tensor and src/dist call it.
 *
 * scripts/native.mjs writes the addon's path to `build/addon.json` when it builds; ATTUNE_ADDON overrides it.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AttuneError } from '../../errors.ts';
import { askedThreads } from './threads.ts';

export interface ArgumentInfo {
  name: string;
  type: string;
  tensor: boolean;
  generator: boolean;
  list: boolean;
  /** The operator writes to this argument. */
  written: boolean;
  kwargOnly: boolean;
  required: boolean;
}

export interface OperatorInfo {
  id: number;
  schema: string;
  /** Its signature is one that `callDirect` supports. */
  direct: boolean;
  arguments: ArgumentInfo[];
  /** `argument` ≥ 0: the result is that argument itself (in-place and out= operators). */
  returns: { type: string; argument: number }[];
}

/** A CUDA device: name, memory, compute capability. */
export interface CudaDevice {
  name: string;
  totalBytes: number;
  freeBytes: number;
  capability: string;
  multiprocessors: number;
}

/** Figures of a CUDA device's memory in bytes: allocated to tensors, and reserved from the driver. */
export interface CudaMemory {
  allocated: number;
  peak: number;
  reserved: number;
  peakReserved: number;
}

type Bytes = ArrayBufferView | ArrayBuffer;

export interface Native {
  resolve(name: string, overload: string): OperatorInfo | null;
  call(id: number, ...args: unknown[]): unknown;
  /** Operators called with their arguments in shared memory (native/door/direct/frame.h). */
  useFrame(frame: Float64Array): void;
  callDirect(): unknown;
  dtypeCodes(): Record<string, number>;
  overloads(name: string): string[];

  fromBytes(data: Bytes, dtype: string, shape: readonly number[]): number;
  bytesOf(handle: number): ArrayBuffer;
  item(handle: number): number | bigint | boolean | { re: number; im: number };
  meta(handle: number): [dtype: string, device: string, ...shape: number[]];
  free(...handles: number[]): void;
  freeAll(handles: Float64Array, count: number): void;
  mapFile(path: string): { id: number; bytes: number };
  mapTensor(mapping: number, offset: number, dtype: string, shape: readonly number[]): number;
  unmapFile(mapping: number): void;
  liveCount(): number;
  liveSize(): number;
  /** Bytes of freed CPU tensors that are kept for the next ones. */
  keptSize(): number;
  reportBytes(): number;

  backward(outputs: number[], gradients: (number | null)[] | null, retainGraph: boolean): void;
  gradients(
    outputs: number[],
    inputs: number[],
    incoming: (number | null)[] | null,
    retainGraph: boolean,
    createGraph: boolean,
  ): (number | null)[];
  gradOf(handle: number): number | null;
  setGrad(handle: number, gradient: number | null): void;
  requiresGrad(handle: number): boolean;
  setRequiresGrad(handle: number, value: boolean): void;
  isLeaf(handle: number): boolean;
  retainGrad(handle: number): void;
  gradEnabled(): boolean;
  setGradEnabled(value: boolean): void;

  setThreads(count: number): void;
  threads(): number;
  setDeterministic(value: boolean): void;
  setMatmulPrecision(value: string): void;
  seed(device: string, seed: number): void;
  rngState(device: string): number;
  setRngState(device: string, state: number): void;
  makeGenerator(device: string, seed: number): number;
  freeGenerator(id: number): void;
  /** Whether libtorch writes its warnings to stderr. */
  setWarnings(shown: boolean): void;
  info(): { libtorch: string; config: string; parallel: string; cuda: boolean; kernels: boolean };

  cudaCount(): number;
  cudaDevice(index: number): CudaDevice;
  cudaSynchronize(index: number): void;
  cudaMemory(index: number): CudaMemory;
  cudaResetPeak(index: number): void;
  cudaEmptyCache(): void;
  cudaStream(index: number): number;
  /** −1 is the device's default stream. */
  cudaUseStream(stream: number, device: number): void;
  cudaStreamWait(stream: number, device: number): void;
  graphMake(device: number): number;
  graphBegin(graph: number, shareWith: number): void;
  graphEnd(graph: number): void;
  graphReplay(graph: number): void;
  graphFree(graph: number): void;

  /** A parameter's memory: lent from a buffer, or taken away while its shape stays (native/dist/storage.cc). */
  storageLend(parameter: number, buffer: number, byteOffset: number): void;
  storageDrop(parameter: number): void;
  /** Signs of life to a launcher (native/dist/beat.cc). */
  beatStart(pipe: number): void;
  beatTurn(): void;

  /** c10d (native/dist); without it there is only `distInfo`. */
  distInfo(): { c10d: boolean; nccl: boolean };
  storeTcp(host: string, port: number, isServer: boolean, timeoutMs: number, prefix: string): Promise<number>;
  /** Ranks that watch one another (native/dist/watch.cc). */
  watchStart(host: string, port: number, prefix: string, rank: number, size: number, seconds: number): void;
  watchStop(): void;
  storeFile(path: string, ranks: number): Promise<number>;
  storePort(store: number): number | null;
  storeSet(store: number, key: string, value: string): Promise<void>;
  storeGet(store: number, key: string): Promise<string | undefined>;
  storeAdd(store: number, key: string, amount: number): Promise<number>;
  storeClose(store: number): Promise<void>;
  /** For an ending process: both block, for at most `seconds`. */
  storeCount(store: number, key: string, seconds: number): void;
  storeAwaitCount(store: number, key: string, count: number, seconds: number): void;
  groupMake(
    store: number,
    backend: string,
    name: string,
    rank: number,
    size: number,
    timeoutMs: number,
    host: string,
    oneMachine: boolean,
  ): Promise<number>;
  groupRun(group: number, operation: string, tensors: number[], root: number): Promise<void>;
  groupStart(group: number, operation: string, tensors: number[], root: number): number;
  groupJoin(ticket: number): void;
  groupFlush(group: number): Promise<void>;
  groupMemory(group: number): boolean;
  groupSeconds(group: number): number;
  /** Operation, bytes, begin and end (microseconds, monotonic) of the collectives since the last call. */
  groupTrace(group: number, on: boolean): [string, number, number, number][];
}

/** The folder that holds package.json; the same path from src/tensor/engine and dist/tensor/engine. */
export const packageRoot = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

function addonPath(): string {
  if (process.env.ATTUNE_ADDON) return process.env.ATTUNE_ADDON;
  const record = join(packageRoot, 'build', 'addon.json');
  if (!existsSync(record)) {
    throw new AttuneError(
      'The engine is not built yet. Run "npm run setup" in the project, or "npx attune doctor" where it is installed.',
    );
  }
  return (JSON.parse(readFileSync(record, 'utf8')) as { path: string }).path;
}

/**
 * The value for OPENBLAS_CORETYPE. Debian's OpenBLAS 0.3.21 mistakes recent Intel CPUs for a 2004 Prescott and runs at
 * a third of their speed. It reads the variable when it is loaded, so the variable must be set before the addon is
 * loaded.
 */
export function openblasCoreType(arch: string, cpuFlags: ReadonlySet<string>): string | undefined {
  if (arch !== 'x64') return undefined;
  if (cpuFlags.has('avx512f') && cpuFlags.has('avx512bw') && cpuFlags.has('avx512vl')) return 'SkylakeX';
  if (cpuFlags.has('avx2')) return 'Haswell';
  return undefined;
}

/** The flags that Linux lists for the first CPU (empty elsewhere). */
export function cpuFlags(): Set<string> {
  try {
    const line = readFileSync('/proc/cpuinfo', 'utf8').match(/^(?:flags|Features)\s*:\s*(.*)$/m);
    return new Set(line?.[1]?.split(/\s+/));
  } catch {
    return new Set();
  }
}

function load(): Native {
  const coreType = openblasCoreType(process.arch, cpuFlags());
  if (coreType !== undefined) process.env.OPENBLAS_CORETYPE ??= coreType;
  // OpenBLAS has its own threads, which libtorch's setting does not affect.
  const threads = askedThreads(process.env);
  if (threads !== undefined) process.env.OPENBLAS_NUM_THREADS ??= String(threads);
  const path = addonPath();
  let addon: Native;
  try {
    addon = createRequire(import.meta.url)(path) as Native;
  } catch (error) {
    const { message } = error as Error;
    if (message.includes('already loaded in another thread')) {
      throw new AttuneError(
        'The engine runs in one thread only, and another one of this process has it. Send that one the work.',
      );
    }
    throw new AttuneError(
      `The engine could not be loaded from ${path}: ${message}. ` +
        'If libtorch was moved or updated, "npm run setup" builds the engine again.',
    );
  }
  // Debian's libtorch starts with one thread.
  addon.setThreads(threads ?? availableParallelism());
  addon.setWarnings(process.env.ATTUNE_WARNINGS === '1');
  return addon;
}

let loaded: Native | undefined;
const awaiting: ((addon: Native) => void)[] = [];

/** Calls `use` with the addon once it is loaded, before any operator is called. */
export function whenLoaded(use: (addon: Native) => void): void {
  if (loaded === undefined) awaiting.push(use);
  else use(loaded);
}

function loadOnce(): Native {
  if (loaded !== undefined) return loaded;
  loaded = load();
  native = loaded; // a live binding: from here on importers call the addon itself
  for (const use of awaiting.splice(0)) use(loaded);
  return loaded;
}

/** The addon; until it is loaded, a stand-in that loads it. */
export let native: Native = new Proxy({} as Native, { get: (_, name) => loadOnce()[name as keyof Native] });
