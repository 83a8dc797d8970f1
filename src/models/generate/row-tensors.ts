/** Tensors about the rows of a decoding step that change only when rows come or go: made once and kept between steps. */
import { type Device, keep, type Tensor, tensor } from '../../tensor/index.ts';
import type { Row } from './row.ts';
import { type RuleTensors, ruleTensors } from './sampling.ts';

export interface HeldRows {
  rule: RuleTensors;
  slots: Tensor;
}

export class RowTensors {
  readonly #device: Device;
  #rows: readonly Row[] = [];
  #held: HeldRows | null = null;

  constructor(device: Device) {
    this.#device = device;
  }

  /** The tensors of these rows; the same object for as long as the rows stay the same. */
  of(rows: readonly Row[]): HeldRows {
    if (this.#held !== null && sameRows(rows, this.#rows)) return this.#held;
    this.dispose();
    const rule = ruleTensors(
      rows.map((row) => row.rule),
      rows.map((row) => row.seed),
      this.#device,
    );
    const slots = tensor(
      BigInt64Array.from(rows, (row) => BigInt(row.slot)),
      { device: this.#device },
    );
    for (const each of [...Object.values(rule), slots]) keep(each);
    this.#rows = [...rows];
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

/** Comparing the rows themselves is enough: `dispose` is called where a row loses its slot before it is done. */
const sameRows = (a: readonly Row[], b: readonly Row[]): boolean =>
  a.length === b.length && a.every((row, i) => row === b[i]);
