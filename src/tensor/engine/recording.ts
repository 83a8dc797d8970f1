/**
 * Passes that are recorded once and replayed without the host: CUDA graphs. A test can put another recorder in the place of this
 * one, which calls a pass again instead of replaying it: all that is decided around graphs then runs without a GPU.
 */
import { Graph, Stream, synchronize } from './cuda.ts';
import type { Device } from './dtype.ts';

/** Whether passes on this device are recorded. */
export const isRecorded = (device: Device): boolean => device.startsWith('cuda');

/** A recorded pass. Every replay reads and writes the same tensors. */
export interface Recorded {
  replay(): void;
}

/** Records passes of which one runs at a time: they share their working memory. */
export class Recorder {
  readonly #device: Device;
  readonly #stream: Stream;
  readonly #graphs: Graph[] = [];

  constructor(device: Device) {
    this.#device = device;
    this.#stream = new Stream(device);
  }

  /** Runs a pass a few times, then records it. One that only repeats what has run (`hasRun`) is recorded at once, and changes nothing. */
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

  /** What `read` gives later is what was queued until now, and it does not wait for what is queued after this. */
  follow(): void {
    this.#stream.follow();
  }
  /** Reads numbers of tensors that what is queued after `follow` does not change. */
  read<T>(body: () => T): T {
    return this.#stream.read(body);
  }

  dispose(): void {
    if (this.#graphs.length > 0) synchronize(this.#device); // the last pass may still run
    for (const graph of this.#graphs) graph.dispose();
    this.#graphs.length = 0;
  }
}
