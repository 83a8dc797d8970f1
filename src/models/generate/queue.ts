/** A fair queue: first come, first served within a client, and clients take turns. */
export class FairQueue<T> {
  /** Waiting items by client, in order of turns: the first client is next. */
  readonly #byClient = new Map<unknown, T[]>();

  push(client: unknown, item: T): void {
    const own = this.#byClient.get(client);
    if (own === undefined) this.#byClient.set(client, [item]);
    else own.push(item);
  }

  /** The next item, without removing it. */
  get first(): T | undefined {
    for (const [item] of this.#byClient.values()) return item;
    return undefined;
  }

  /** Removes and returns the next item; then it is another client's turn. */
  shift(): T | undefined {
    for (const [client, own] of this.#byClient) {
      const item = own.shift();
      this.#byClient.delete(client);
      if (own.length > 0) this.#byClient.set(client, own);
      return item;
    }
    return undefined;
  }

  /** Removes the items that `wanted` rejects. */
  keepOnly(wanted: (item: T) => boolean): void {
    for (const [client, own] of this.#byClient) {
      const rest = own.filter(wanted);
      if (rest.length === own.length) continue;
      if (rest.length === 0) this.#byClient.delete(client);
      else this.#byClient.set(client, rest); // setting an existing key keeps its place in the order
    }
  }

  *[Symbol.iterator](): Iterator<T> {
    for (const own of this.#byClient.values()) yield* own;
  }
}
