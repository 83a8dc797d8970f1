/**
 * Passes that are recorded once and replayed without the host: CUDA graphs. A test can substitute a recorder that calls
 * a pass again instead of replaying it, so the decisions around graphs can be tested without a GPU.
 */
import { Graph, Stream, synchronize } from './cuda.ts';
import type { Device } from './dtype.ts';

/** Whether passes on this device are recorded. */
export const isRecorded = (device: Device): boolean => device.startsWith('cuda');

/** A recorded pass. Every replay reads and writes the same tensors. */
export interface Recorded {
  replay(): void;
}

/** Records passes that never run at the same time: they share their working memory. */
export class Recorder {
  readonly #device: Device;
  readonly #stream: Stream;
  readonly #graphs: Graph[] = [];

  constructor(device: Device) {
    this.#device = device;
    this.#stream = new Stream(device);
  }

  /**
   * Runs a pass a few times, then records it. A pass that has run before (`hasRun`) is recorded at once, which changes
   * nothing.
   */
  record(pass: () => void, { hasRun = false } = {}): Recorded {
    const [pool] = this.#graphs;
    const graph = Graph.capture(pass, {
      stream: this.#stream,
      ...(hasRun ? { warmups: 0 } : {}),
      ...(pool === undefined ? {} : { pool }),
    });
    this.#graphs.push(graph);
    return graph;
  }

  /** Later calls of `read` see what has been queued until now, and do not wait for what is queued after this. */
  follow(): void {
    this.#stream.follow();
  }
  /** Reads tensors that work queued after `follow` does not change. */
  read<T>(body: () => T): T {
    return this.#stream.read(body);
  }

  dispose(): void {
    if (this.#graphs.length > 0) synchronize(this.#device); // the last pass may still run
    for (const graph of this.#graphs) graph.dispose();
    this.#graphs.length = 0;
  }
}
