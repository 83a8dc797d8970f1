/** Tokens that the device has drawn and the host reads later. */
import { aten, type Device, keep, Recorder, scope, type Tensor, zeros } from '../../tensor/index.ts';
import type { Row } from './row.ts';
import { type Drawn, type DrawnTensors, penalise, restrict } from './sampling.ts';

/** Tokens, then, as floats, their log-probs and kept shares: parts of one int64 array. */
function partsOf(all: BigInt64Array): { ids: BigInt64Array; logp: Float32Array; kept: Float32Array } {
  const count = all.length / 2;
  const [ids, rest] = [all.subarray(0, count), all.subarray(count)];
  const shares = new Float32Array(rest.buffer, rest.byteOffset, 2 * count);
  return { ids, logp: shares.subarray(0, count), kept: shares.subarray(count) };
}

/** The result, [2, rows], of `sampleTogether` or of a decode plan after prompts. */
export function drawnOnHost(drawn: Tensor): Drawn {
  const { ids, logp, kept } = partsOf(drawn.data() as BigInt64Array);
  return { ids: Array.from(ids, Number), logprobs: Array.from(logp), kept: Array.from(kept) };
}

/**
 * What the steps of a CUDA graph draw: tokens, log-probs and kept shares in one tensor, so that the host reads them in
 * one copy.
 */
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
    return partsOf(this.#all.data() as BigInt64Array);
  }

  dispose(): void {
    for (const own of [...Object.values(this.tensors), this.#all]) own.dispose();
  }
}

/**
 * Rows' first tokens, drawn after their prompts. They are read while the device does later work, so that it is busy
 * while the host puts the next prompts together.
 */
export class FirstTokens {
  readonly #recorder: Recorder;
  #drawn: { rows: readonly Row[]; drawn: Tensor }[] = [];

  constructor(device: Device) {
    this.#recorder = new Recorder(device);
  }

  /** `drawn`: the result of `sampleTogether`. */
  add(rows: readonly Row[], drawn: Tensor): void {
    this.#drawn.push({ rows, drawn: keep(drawn) });
  }

  /** Queues the work of `body`, then gives the rows added before it their tokens, without waiting for that work. */
  takeAfter(body: () => void): void {
    const before = this.#drawn;
    this.#drawn = [];
    try {
      body();
    } finally {
      for (const { rows, drawn } of before) {
        const { ids, logprobs, kept } = this.#recorder.read(() => drawnOnHost(drawn));
        for (const [i, row] of rows.entries())
          if (row.finish === null) row.push(ids[i] as number, logprobs[i] as number, kept[i] as number); // else it was cancelled
      }
      disposeAll(before);
    }
    if (this.#drawn.length > 0) this.#recorder.follow();
  }

  /** Drops results that were not taken. */
  forget(): void {
    disposeAll(this.#drawn);
    this.#drawn = [];
  }

  dispose(): void {
    this.forget();
    this.#recorder.dispose();
  }
}

function disposeAll(drawn: readonly { drawn: Tensor }[]): void {
  for (const each of drawn) each.drawn.dispose();
}

/** Applies a row's repetition penalty and its allowed tokens to its logits, in place. */
export function shape(logits: Tensor, row: Row): void {
  const { repetitionPenalty } = row.rule;
  const { prompt, allow } = row.request;
  if (repetitionPenalty !== 1) penalise(logits, new Set([...Array.from(prompt), ...row.ids]), repetitionPenalty);
  if (allow === undefined) return;
  try {
    restrict(logits, allow(row.ids, row.sample));
  } catch (error) {
    row.onError?.(error); // the other rows continue
  }
}
