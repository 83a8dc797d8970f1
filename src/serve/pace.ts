/**
 * How often a stream writes. A write costs the server and its client some ten microseconds each, about as much as a
 * token of a small model. With many streams these add up, so a stream sends its tokens a few at a time.
 */
const MS_PER_STREAM = 0.75;
const MOST_MS = 50;

/** One clock for all streams of a server: waiting streams write at the same moment. */
export class Pace {
  #streams = 0;
  #last = 0;
  #next: PromiseWithResolvers<void> | undefined;

  /** Counts a stream until the returned function is called. */
  enter(): () => void {
    this.#streams++;
    let left = false;
    return () => {
      if (!left) this.#streams--;
      left = true;
    };
  }

  /** Resolves when a stream that has just written may write again. */
  turn(): Promise<void> {
    if (this.#next !== undefined) return this.#next.promise;
    const next = Promise.withResolvers<void>();
    const gap = Math.min(MOST_MS, MS_PER_STREAM * this.#streams);
    const wait = this.#last + gap - performance.now();
    const ring = () => {
      this.#last = performance.now();
      this.#next = undefined;
      next.resolve();
    };
    this.#next = next;
    if (wait < 1) setImmediate(ring);
    else setTimeout(ring, wait);
    return next.promise;
  }
}
