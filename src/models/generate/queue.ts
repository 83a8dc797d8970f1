/** Requests that wait, in the order they came within a client and in turn between clients. */
export class FairQueue<T> {
  /** The client whose turn it is comes first. */
  readonly #byClient = new Map<unknown, T[]>();

  push(client: unknown, item: T): void {
    const own = this.#byClient.get(client);
    if (own === undefined) this.#byClient.set(client, [item]);
    else own.push(item);
  }

  /** The next one, left where it is. */
  get first(): T | undefined {
    for (const [item] of this.#byClient.values()) return item;
    return undefined;
  }

  /** Takes out the next one; then it is another client's turn. */
  shift(): T | undefined {
    for (const [client, own] of this.#byClient) {
      const item = own.shift();
      this.#byClient.delete(client);
      if (own.length > 0) this.#byClient.set(client, own);
      return item;
    }
    return undefined;
  }

  /** Takes out those that are not wanted any more. */
  keepOnly(wanted: (item: T) => boolean): void {
    for (const [client, own] of this.#byClient) {
      const rest = own.filter(wanted);
      if (rest.length === own.length) continue;
      if (rest.length === 0) this.#byClient.delete(client);
      else this.#byClient.set(client, rest); // a key that is there keeps its place
    }
  }

  *[Symbol.iterator](): Iterator<T> {
    for (const own of this.#byClient.values()) yield* own;
  }
}
