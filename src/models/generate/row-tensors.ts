/** What a decoding step needs to know of its rows and that changes only when replies come or go: held from step to step. */
import { type Device, keep, type Tensor, tensor } from '../../tensor/index.ts';
import type { Reply } from './request.ts';
import { type RuleTensors, ruleTensors } from './sampling.ts';

export interface HeldRows {
  rule: RuleTensors;
  slots: Tensor;
}

export class RowTensors {
  readonly #device: Device;
  #replies: readonly Reply[] = [];
  #held: HeldRows | null = null;

  constructor(device: Device) {
    this.#device = device;
  }

  /** The same object for as long as the rows are the same. */
  of(replies: readonly Reply[]): HeldRows {
    if (this.#held !== null && sameRows(replies, this.#replies)) return this.#held;
    this.dispose();
    const rule = ruleTensors(
      replies.map((reply) => reply.rule),
      replies.map((reply) => reply.seed),
      this.#device,
    );
    const slots = tensor(
      BigInt64Array.from(replies, (reply) => BigInt(reply.slot)),
      { device: this.#device },
    );
    for (const each of [...Object.values(rule), slots]) keep(each);
    this.#replies = [...replies];
    this.#held = { rule, slots };
    return this.#held;
  }

  dispose(): void {
    if (this.#held === null) return;
    for (const each of [...Object.values(this.#held.rule), this.#held.slots]) each.dispose();
    this.#held = null;
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** A reply keeps its slot for as long as it is written, so the same replies are the same rows. */
const sameRows = (a: readonly Reply[], b: readonly Reply[]): boolean =>
  a.length === b.length && a.every((reply, i) => reply === b[i]);
