/** Numbers gathered over micro-batches, updates and steps. Those on a device are read back once, together. */
import { scope, stack, Tensor } from '../../tensor/index.ts';

export type Sums = Record<string, number | Tensor>;

/** Adds up the micro-batches of one update without waiting for the device. */
export class UpdateSums {
  #numbers: Record<string, number> = {};
  #tensors = new Map<string, Tensor>();

  add(sums: Sums): void {
    for (const [name, value] of Object.entries(sums)) {
      if (typeof value === 'number') {
        this.#numbers[name] = (this.#numbers[name] ?? 0) + value;
        continue;
      }
      const before = this.#tensors.get(name);
      if (!before) {
        this.#tensors.set(name, value);
        continue;
      }
      this.#tensors.set(name, before.add(value));
      before.dispose();
      value.dispose();
    }
  }

  read(): Record<string, number> {
    const names = [...this.#tensors.keys()];
    const tensors = [...this.#tensors.values()];
    const values =
      names.length === 0
        ? []
        : scope(() => stack(tensors.map((value) => value.detach().to('float32').reshape())).numbers());
    this.dispose();
    return { ...this.#numbers, ...Object.fromEntries(names.map((name, i) => [name, values[i] ?? Number.NaN])) };
  }

  dispose(): void {
    for (const value of this.#tensors.values()) value.dispose();
    this.#tensors.clear();
  }
}

/** The mean of each metric over those rows that have it. */
export function meanOf(rows: readonly Record<string, number>[]): Record<string, number> {
  const sums = new Map<string, { sum: number; count: number }>();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) {
      const entry = sums.get(name) ?? { sum: 0, count: 0 };
      sums.set(name, { sum: entry.sum + value, count: entry.count + 1 });
    }
  }
  return Object.fromEntries([...sums].map(([name, { sum, count }]) => [name, sum / count]));
}

/** Counters and the rate are told as they are; everything measured is averaged over the steps of a row. */
export const averaged = (name: string) =>
  name.startsWith('train/') && !/^train\/(lr|epoch|examples|skipped_steps)$/.test(name);

/** `loss` becomes `train/loss`; a name that has a prefix keeps it. */
export const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name.includes('/') ? name : prefix + name, value]));

/** A metric must not keep a graph alive. */
export const detached = (sums: Sums): Sums =>
  Object.fromEntries(
    Object.entries(sums).map(([name, value]) => [name, value instanceof Tensor ? value.detach() : value]),
  );
