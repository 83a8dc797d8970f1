/**
 * Marks the parts of a streamed response that are thinking (<think>…</think>), so that they can be shown separately.
 */
const open = '<think>';
const close = '</think>';

/** A piece of a streamed response, and whether it is thinking. */
export interface Part {
  text: string;
  thinking: boolean;
}

/** Splits streamed pieces into parts; an incomplete tag waits for the rest. */
export class ThinkingParts {
  #waiting = '';
  #thinking = false;

  push(piece: string): Part[] {
    this.#waiting += piece;
    const parts: Part[] = [];
    for (;;) {
      const tag = this.#thinking ? close : open;
      const at = this.#waiting.indexOf(tag);
      if (at >= 0) {
        const end = this.#thinking ? at + tag.length : at;
        this.#emit(parts, end);
        this.#thinking = !this.#thinking;
        continue;
      }
      // Holds back what may be the start of the tag.
      let held = Math.min(tag.length - 1, this.#waiting.length);
      while (held > 0 && !tag.startsWith(this.#waiting.slice(-held))) held--;
      this.#emit(parts, this.#waiting.length - held);
      return parts;
    }
  }

  flush(): Part[] {
    const parts: Part[] = [];
    this.#emit(parts, this.#waiting.length);
    return parts;
  }

  #emit(parts: Part[], end: number): void {
    if (end > 0) parts.push({ text: this.#waiting.slice(0, end), thinking: this.#thinking });
    this.#waiting = this.#waiting.slice(end);
  }
}
