/** Tokens that the device has drawn and the host reads later. */
import { aten, type Device, keep, Recorder, scope, type Tensor, zeros } from '../../tensor/index.ts';
import type { Row } from './row.ts';
import { type DrawnTensors, onHost } from './sampling.ts';

/** What the steps of a CUDA graph draw: tokens, log-probs and kept shares in one tensor, so that the host reads them by one copy. */
export class DrawnTokens {
  /** [turns, slots] each. */
  readonly tensors: DrawnTensors;
  readonly #all: Tensor;

  constructor(turns: number, slots: number, device: Device) {
    this.#all = keep(zeros([2, turns, slots], { dtype: 'int64', device }));
    this.tensors = scope(() => {
      const [ids, rest] = [this.#all.select(0, 0), this.#all.select(0, 1)];
      const shares = aten<Tensor>('view.dtype', rest, 'float32').reshape(2, turns, slots);
      return { ids: keep(ids), logp: keep(shares.select(0, 0)), kept: keep(shares.select(0, 1)) };
    });
  }

  read(): { ids: BigInt64Array; logp: Float32Array; kept: Float32Array } {
    const all = this.#all.data() as BigInt64Array;
    const count = all.length / 2;
    const [ids, rest] = [all.subarray(0, count), all.subarray(count)];
    const shares = new Float32Array(rest.buffer, rest.byteOffset, 2 * count);
    return { ids, logp: shares.subarray(0, count), kept: shares.subarray(count) };
  }

  dispose(): void {
    for (const own of [...Object.values(this.tensors), this.#all]) own.dispose();
  }
}

/**
 * First tokens of rows, drawn after their prompts. They are read beside the device's later work, so that it has some while the host
 * puts the next prompts together.
 */
export class FirstTokens {
  readonly #recorder: Recorder;
  #drawn: { rows: readonly Row[]; drawn: DrawnTensors }[] = [];

  constructor(device: Device) {
    this.#recorder = new Recorder(device);
  }

  add(rows: readonly Row[], { ids, logp, kept }: DrawnTensors): void {
    this.#drawn.push({ rows, drawn: { ids: keep(ids), logp: keep(logp), kept: keep(kept) } });
  }

  /** Queues the work of `body`, then gives the rows that were added before it their tokens, without waiting for that work. */
  takeAfter(body: () => void): void {
    const before = this.#drawn;
    this.#drawn = [];
    try {
      body();
    } finally {
      for (const { rows, drawn } of before) {
        const { ids, logprobs, kept } = this.#recorder.read(() => onHost(drawn));
        for (const [i, row] of rows.entries())
          if (row.finish === null) row.push(ids[i] as number, logprobs[i] as number, kept[i] as number); // else it was cancelled
      }
      disposeAll(before);
    }
    if (this.#drawn.length > 0) this.#recorder.follow();
  }

  /** Drops what was not taken. */
  forget(): void {
    disposeAll(this.#drawn);
    this.#drawn = [];
  }

  dispose(): void {
    this.forget();
    this.#recorder.dispose();
  }
}

function disposeAll(drawn: readonly { drawn: DrawnTensors }[]): void {
  for (const each of drawn) for (const tensor of Object.values(each.drawn)) tensor.dispose();
}
