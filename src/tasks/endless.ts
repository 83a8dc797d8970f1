/** What sources of prompts without end share: their place in the stream, a curriculum, and what stands for the problems they draw. */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.ts';
import { counted } from '../spelling.ts';
import type { Curriculum } from './curriculum.ts';

/** Prompts that are too long are skipped; this many in a row are an error. */
const mostTooLong = 1000;

/** A part of a recipe: problems of one name, from one difficulty to another. */
interface Part {
  name: string;
  lowest: number;
  highest: number;
  weight: number;
}

export abstract class EndlessPrompts {
  readonly epoch = 0;
  readonly size = undefined;
  /** The place of the next problem. */
  protected next = 0;
  protected readonly curriculum: Curriculum | undefined;

  constructor(curriculum: Curriculum | undefined) {
    this.curriculum = curriculum;
  }

  metrics(): Record<string, number> {
    return this.curriculum?.metrics() ?? {};
  }

  state(): unknown {
    return { next: this.next, levels: this.curriculum?.state() ?? {} };
  }

  restore(state: unknown): void {
    const { next, levels } = state as { next: number; levels: unknown };
    this.next = next;
    this.curriculum?.restore(levels);
  }

  /** Stands for the problems, whatever the order of the parts and the unit of their weights; `written`: one of them as a prompt. */
  protected fingerprintOf(parts: readonly Part[], written: string | undefined): string {
    const used = parts.filter(({ weight }) => weight > 0);
    const whole = used.reduce((sum, { weight }) => sum + weight, 0);
    // Shares of the same weights in other units differ in their last digits.
    const share = (weight: number) => Number((weight / whole).toPrecision(9));
    const texts = used.map((part) => JSON.stringify([part.name, part.lowest, part.highest, share(part.weight)]));
    const facts = [texts.sort(), written, this.curriculum !== undefined];
    return createHash('sha256').update(JSON.stringify(facts)).digest('hex');
  }
}

/** Throws where so many prompts in a row were too long that there may be no others. */
export function checkTooLong(inRow: number, { maxLength }: { maxLength: number }): void {
  if (inRow > mostTooLong)
    throw new UserError(
      `${mostTooLong} prompts in a row were longer than ${counted(maxLength, 'token')} (--prompt-max-length, or the room that --max-new-tokens leaves).`,
    );
}
