/**
 * A response as it streams, cut before a stop text: the end of the text is held back while it may be the beginning of a
 * stop text.
 *
 *     const text = new StopText(['</answer>']);
 *     text.push('uba</ans');       // 'uba'
 *     text.push('wer>');           // '' and text.stopped
 */
export class StopText {
  readonly #stops: readonly string[];
  readonly #held: number;
  #written = '';
  #sent = 0;
  #cutAt = Number.POSITIVE_INFINITY;

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '');
    this.#held = Math.max(0, ...this.#stops.map((stop) => stop.length - 1));
  }

  get stopped(): boolean {
    return this.#cutAt !== Number.POSITIVE_INFINITY;
  }

  /** The text that is certain after this piece. */
  push(piece: string): string {
    if (this.#stops.length === 0) return piece;
    if (this.stopped) return '';
    this.#written += piece;
    const found = this.#stops.map((stop) => this.#written.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) this.#cutAt = Math.min(...found);
    return this.#upTo(Math.min(this.#written.length - this.#held, this.#cutAt));
  }

  /** The rest, at the end of the response. */
  flush(): string {
    return this.#upTo(Math.min(this.#written.length, this.#cutAt));
  }

  #upTo(end: number): string {
    const fresh = this.#written.slice(this.#sent, Math.max(this.#sent, end));
    this.#sent += fresh.length;
    return fresh;
  }
}
