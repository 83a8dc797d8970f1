/**
 * Reads rows of metrics without making an object of each. A run writes nearly all of its rows with the same fields in
 * the same order, so that a line is compared with the fields of an earlier row and only its numbers are read, in about
 * three quarters of the time. A line that differs in anything is left to JSON.parse, which teaches its layout.
 *
 *     const layouts = new RowLayouts();
 *     layouts.learn({ step: 1, 'train/loss': 2 });
 *     layouts.read(Buffer.from('{"step":2,"train/loss":0.5}\n'), 0, 27);      // { …, values: [2, 0.5] }
 */
export interface Layout {
  readonly names: readonly string[];
  /** Of the line read last. */
  readonly values: number[];
}

interface Known extends Layout {
  /** The bytes before each value: `{"step":`, `,"train/loss":`. */
  readonly before: readonly Uint8Array[];
}

/** Training rows, evaluation rows, and rows of both. */
const mostLayouts = 6;
const [minus, dot, zero, nine, brace, comma] = Buffer.from('-.09},') as unknown as [
  ...[number, number, number, number, number, number],
];
/** Signs of the numbers that are not plain decimals: 1e-7, 2.5E+30. */
const exponentSigns = Buffer.from('eE+-');
/** A decimal of up to 15 digits is its digits divided by a power of ten: both are exact, so the quotient is as JSON's. */
const powers = Array.from({ length: 16 }, (_, i) => 10 ** i);

export class RowLayouts {
  readonly #known: Known[] = [];
  /** Where the last number ended. */
  #end = 0;

  learn(row: Readonly<Record<string, unknown>>): void {
    const names = Object.keys(row);
    if (!names.every((name) => typeof row[name] === 'number')) return;
    const before = names.map((name, i) => Buffer.from(`${i === 0 ? '{' : ','}${JSON.stringify(name)}:`));
    this.#known.unshift({ names, before, values: new Array<number>(names.length).fill(0) });
    this.#known.length = Math.min(this.#known.length, mostLayouts);
  }

  /** The row that stands in bytes[start, end), without its line break; undefined where no known layout fits. */
  read(bytes: Buffer, start: number, end: number): Layout | undefined {
    for (const layout of this.#known) if (this.#fits(layout, bytes, start, end)) return layout;
    return undefined;
  }

  #fits({ before, values }: Known, bytes: Buffer, start: number, end: number): boolean {
    let at = start;
    for (let i = 0; i < before.length; i++) {
      const field = before[i] as Uint8Array;
      for (let j = 0; j < field.length; j++) if (bytes[at + j] !== field[j]) return false;
      const value = this.#number(bytes, at + field.length, end);
      if (value === undefined) return false;
      values[i] = value;
      at = this.#end;
    }
    return bytes[at] === brace && at + 1 === end;
  }

  /** The number at a place; undefined where anything else stands there. */
  #number(bytes: Buffer, from: number, end: number): number | undefined {
    const isNegative = bytes[from] === minus;
    let at = isNegative ? from + 1 : from;
    let digits = 0;
    let count = 0;
    let fraction = -1;
    for (; at < end; at++) {
      const sign = bytes[at] as number;
      if (sign >= zero && sign <= nine) {
        digits = 10 * digits + sign - zero;
        count++;
        if (fraction >= 0) fraction++;
      } else if (sign === dot && fraction < 0) fraction = 0;
      else if (sign === comma || sign === brace) break;
      else return exponentSigns.includes(sign) ? this.#slowly(bytes, from, end) : undefined;
    }
    if (count === 0) return undefined;
    if (count > 15) return this.#slowly(bytes, from, end);
    this.#end = at;
    const value = fraction > 0 ? digits / (powers[fraction] as number) : digits;
    return isNegative ? -value : value;
  }

  #slowly(bytes: Buffer, from: number, end: number): number | undefined {
    let at = from;
    while (at < end && bytes[at] !== comma && bytes[at] !== brace) at++;
    this.#end = at;
    const value = Number(bytes.toString('latin1', from, at));
    return Number.isNaN(value) ? undefined : value;
  }
}
