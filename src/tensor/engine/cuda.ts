/** CUDA's own matters. On a build without CUDA `cudaCount()` is 0 and the rest throws an error that says so. */
import { attempt } from './error.ts';
import { type CudaMemory, native } from './native.ts';

export function cudaCount(): number {
  return native.cudaCount();
}
/** Waits until all queued work on the device is done. */
export function synchronize(device = 0): void {
  attempt('synchronize', () => native.cudaSynchronize(device));
}
/** Bytes allocated now, at the peak, and reserved from the driver. */
export function cudaMemory(device = 0): CudaMemory {
  return attempt('cudaMemory', () => native.cudaMemory(device));
}
export function resetPeakMemory(device = 0): void {
  attempt('resetPeakMemory', () => native.cudaResetPeak(device));
}
export function emptyCache(): void {
  attempt('emptyCache', () => native.cudaEmptyCache());
}

const DEFAULT_STREAM = -1;

export class Stream {
  readonly #id: number;
  constructor(device = 0) {
    this.#id = attempt('Stream', () => native.cudaStream(device));
  }
  /** Queues the work of `body` here; this stream first waits for what is queued on the default one, and the reverse after. */
  run<T>(body: () => T): T {
    native.cudaStreamWait(this.#id);
    native.cudaUseStream(this.#id);
    try {
      return body();
    } finally {
      native.cudaStreamWait(DEFAULT_STREAM);
      native.cudaUseStream(DEFAULT_STREAM);
    }
  }
}

/**
 * A recorded sequence of kernels. What `body` computes is written to the same tensors on every replay, so its inputs are
 * tensors that are refilled in place and its outputs are tensors that are kept.
 *
 *     const graph = Graph.capture(() => { out = model(input) });
 *     input.copy_(next); graph.replay(); out…
 */
export class Graph {
  readonly #id: number;
  #freed = false;
  private constructor(id: number) {
    this.#id = id;
  }

  /** Graphs captured with the same `pool` share their working memory and must not run at the same time. */
  static capture(body: () => void, options: { pool?: Graph; warmups?: number; stream?: Stream } = {}): Graph {
    const graph = new Graph(attempt('Graph', () => native.graphMake()));
    const stream = options.stream ?? new Stream();
    stream.run(() => {
      for (let i = 0; i < (options.warmups ?? 2); i++) body();
      native.cudaSynchronize(0);
      native.graphBegin(graph.#id, options.pool === undefined ? -1 : options.pool.#id);
      try {
        body();
      } finally {
        native.graphEnd(graph.#id);
      }
    });
    return graph;
  }
  replay(): void {
    native.graphReplay(this.#id);
  }
  dispose(): void {
    if (!this.#freed) native.graphFree(this.#id);
    this.#freed = true;
  }
}
