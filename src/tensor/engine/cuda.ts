/** CUDA devices, streams and graphs. On a build without CUDA `cudaCount()` is 0 and the rest throws an error that says so. */
import { type Device, isDevice } from './dtype.ts';
import { attempt, TensorError } from './error.ts';
import { type CudaMemory, native } from './native.ts';

/** A CUDA device by its number or its name; `cuda` alone is the first. */
export type CudaIndex = number | Device;

function indexOf(device: CudaIndex): number {
  return typeof device === 'number' ? device : Number(/^cuda:(\d+)$/.exec(device)?.[1] ?? 0);
}

/** How many CUDA devices there are; 0 on a build without CUDA. */
export function cudaCount(): number {
  return native.cudaCount();
}

/**
 * Why there is no such device, and what to do; undefined if there is one. For error messages: calls do not look the
 * device up first.
 */
export function missingDevice(device: Device): string | undefined {
  if (!isDevice(device)) return `There is no device "${device}": take cpu, cuda or cuda:N.`;
  if (!device.startsWith('cuda')) return undefined;
  const count = native.cudaCount();
  if (indexOf(device) < count) return undefined;
  const missing =
    count > 0
      ? `there ${count === 1 ? 'is one GPU, cuda:0' : `are ${count} GPUs, cuda:0 to cuda:${count - 1}`}. Take one of them`
      : native.info().cuda
        ? 'libtorch finds no GPU. Take cpu, or mend the driver'
        : 'this libtorch is built without CUDA. Take cpu, or name one with CUDA by the variable ATTUNE_LIBTORCH';
  return `The device "${device}" was asked for, but ${missing} (attune doctor shows what was found).`;
}

/** Waits until all work queued on the device is done. Measure times only after it. */
export function synchronize(device: CudaIndex = 0): void {
  attempt('synchronize', () => native.cudaSynchronize(indexOf(device)));
}

/** Bytes allocated to tensors now and at the peak, and bytes reserved from the driver. */
export function cudaMemory(device: CudaIndex = 0): CudaMemory {
  return attempt('cudaMemory', () => native.cudaMemory(indexOf(device)));
}

/** Resets the peak figures of `cudaMemory`. */
export function resetPeakMemory(device: CudaIndex = 0): void {
  attempt('resetPeakMemory', () => native.cudaResetPeak(indexOf(device)));
}

/** Returns cached but unused device memory to the driver, for other programs. */
export function emptyCache(): void {
  attempt('emptyCache', () => native.cudaEmptyCache());
}

const DEFAULT_STREAM = -1;

/** A CUDA queue: work on it may run beside the default stream's. */
export class Stream {
  readonly #id: number;
  /** @internal The number of its device. */
  readonly device: number;
  constructor(device: CudaIndex = 0) {
    this.device = indexOf(device);
    this.#id = attempt('Stream', () => native.cudaStream(this.device));
  }
  /** Later calls of `read` see what is queued on the default stream now, and do not wait for what comes after. */
  follow(): void {
    native.cudaStreamWait(this.#id, this.device);
  }
  /**
   * Runs `body` on this stream, after what it follows (`follow`) and beside the default stream's later work. `body`
   * must wait for its own work, as reading numbers does, since what it reads may be freed afterwards.
   */
  read<T>(body: () => T): T {
    native.cudaUseStream(this.#id, this.device);
    try {
      return body();
    } finally {
      native.cudaUseStream(DEFAULT_STREAM, this.device);
    }
  }
  /** Queues the work of `body` on this stream. It starts after what is queued on the default stream, which then waits for it. */
  run<T>(body: () => T): T {
    const { device } = this;
    native.cudaStreamWait(this.#id, device);
    native.cudaUseStream(this.#id, device);
    try {
      return body();
    } finally {
      try {
        native.cudaStreamWait(DEFAULT_STREAM, device);
      } finally {
        native.cudaUseStream(DEFAULT_STREAM, device);
      }
    }
  }
}

/**
 * A CUDA graph: a recorded sequence of kernels that is replayed as a whole. Every replay reads and writes the same tensors:
 * refill the inputs in place, replay, and read the outputs.
 *
 *     const graph = Graph.capture(() => { out = model(input) });
 *     input.copy_(next); graph.replay(); out…
 */
export class Graph {
  static #isCapturing = false;
  readonly #id: number;
  #freed = false;
  private constructor(id: number) {
    this.#id = id;
  }

  /**
   * Records what `body` queues on the stream. Graphs captured with the same `pool` share their working memory, so they
   * must not run at the same time.
   */
  static capture(body: () => void, options: { pool?: Graph; warmups?: number; stream?: Stream } = {}): Graph {
    if (Graph.#isCapturing)
      throw new TensorError(
        'Graph',
        'a graph cannot be captured while a graph is being captured: end the capture first',
      );
    const stream = options.stream ?? new Stream();
    const graph = new Graph(attempt('Graph', () => native.graphMake(stream.device)));
    try {
      stream.run(() => graph.#record(body, stream.device, options));
    } catch (error) {
      graph.dispose();
      throw error;
    }
    return graph;
  }

  #record(body: () => void, device: number, options: { pool?: Graph; warmups?: number }): void {
    for (let i = 0; i < (options.warmups ?? 2); i++) body();
    native.cudaSynchronize(device);
    native.graphBegin(this.#id, options.pool === undefined ? -1 : options.pool.#id);
    Graph.#isCapturing = true;
    try {
      body();
    } finally {
      Graph.#isCapturing = false;
      native.graphEnd(this.#id);
    }
  }

  replay(): void {
    native.graphReplay(this.#id);
  }
  dispose(): void {
    if (!this.#freed) native.graphFree(this.#id);
    this.#freed = true;
  }
}
