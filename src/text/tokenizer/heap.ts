/** A binary heap: `pop` removes and returns the first entry. */
export class Heap<T> {
  readonly #entries: T[] = [];
  readonly #before: (a: T, b: T) => boolean;

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  push(entry: T): void {
    const entries = this.#entries;
    let i = entries.length;
    entries.push(entry);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!this.#before(entry, entries[parent] as T)) break;
      entries[i] = entries[parent] as T;
      i = parent;
    }
    entries[i] = entry;
  }

  pop(): T | undefined {
    const entries = this.#entries;
    const top = entries[0];
    const last = entries.pop();
    if (last === undefined || entries.length === 0) return top;
    let i = 0;
    for (let child = 1; child < entries.length; child = 2 * i + 1) {
      if (child + 1 < entries.length && this.#before(entries[child + 1] as T, entries[child] as T)) child++;
      if (!this.#before(entries[child] as T, last)) break;
      entries[i] = entries[child] as T;
      i = child;
    }
    entries[i] = last;
    return top;
  }
}
