/**
 * Worked solutions, right and wrong, from one derivation. A task writes its working with a `Pen`; every value it works
 * out goes through the pen. A pen that slips at one of those places returns a plausible wrong value instead, and
 * the working continues from it. So a wrong solution looks like a right one, and the first wrong step is known.
 *
 *     const sum = pen.number(a + b);
 *     pen.say(`${a}+${b}=${sum}`);
 */
import type { Random } from '../../random.ts';

/** 1: right and useful; 0: right but only restates; −1: the wrong step, and everything that follows from it. */
export type StepLabel = 1 | 0 | -1;

/** One line of a worked solution, with its label. */
export interface Step {
  text: string;
  label: StepLabel;
}

/** A worked solution: steps, answer and the verifier's score. */
export interface Solution {
  steps: Step[];
  answer: string;
  /** What the task's own verifier says of the answer. */
  score: number;
}

/** Where a pen goes wrong. */
export interface Slip {
  /** Which of the worked-out values goes wrong, from 0. */
  at: number;
  random: Random;
}

/** Writes the steps of a worked solution; the values that it is given may slip. */
export class Pen {
  readonly steps: Step[] = [];
  /** How many values have been worked out so far. */
  places = 0;
  slipped = false;
  readonly #slip: Slip | undefined;

  constructor(slip?: Slip) {
    this.#slip = slip;
  }

  /** A value worked out in the next step: the right one, or at the slip one of the wrong ones. */
  value<T>(right: T, wrong: (random: Random) => T): T {
    const slip = this.#slip;
    if (slip === undefined || this.places++ !== slip.at) {
      if (slip === undefined) this.places++;
      return right;
    }
    for (let attempt = 0; attempt < 20; attempt++) {
      const value = wrong(slip.random);
      if (value !== right) {
        this.slipped = true;
        return value;
      }
    }
    return right;
  }

  number(right: number): number {
    return this.value(right, (random) => nearMiss(random, right));
  }

  choice<T>(right: T, options: readonly T[]): T {
    return this.value(right, (random) => random.pick(options));
  }

  say(text: string): void {
    this.steps.push({ text, label: this.slipped ? -1 : 1 });
  }

  /** A step that only restates or lays out the problem. */
  note(text: string): void {
    this.steps.push({ text, label: this.slipped ? -1 : 0 });
  }
}

/**
 * The kind of wrong number that people and models write: off by one or two, off by ten, a digit misread or two
 * swapped. It has the same sign and number of digits, so that its length does not give it away.
 */
export function nearMiss(random: Random, right: number): number {
  for (let attempt = 0; attempt < 40; attempt++) {
    const wrong = misstep(random, right);
    if (wrong !== right && Math.sign(wrong) * Math.sign(right) >= 0 && String(wrong).length === String(right).length) {
      return wrong;
    }
  }
  return right + 1;
}

function misstep(random: Random, right: number): number {
  const sign = random.chance(0.5) ? 1 : -1;
  const digits = String(Math.abs(right)).split('');
  const place = random.int(0, digits.length - 1);
  switch (random.int(0, 3)) {
    case 0:
      return right + sign;
    case 1:
      return right + sign * random.int(2, 3);
    case 2:
      return digits.length > 1 ? right + sign * 10 : right + sign;
    default: {
      if (random.chance(0.5) && place > 0)
        [digits[place - 1], digits[place]] = [digits[place] ?? '', digits[place - 1] ?? ''];
      else digits[place] = String(random.int(0, 9));
      return Math.sign(right || 1) * Number(digits.join(''));
    }
  }
}

/** The same text with two different neighbours exchanged, or one letter replaced: a slip of spelling. */
export function misspelling(random: Random, right: string, alphabet = 'abcdefghijklmnopqrstuvwxyz'): string {
  const letters = [...right];
  const swaps = letters.flatMap((letter, i) => (i > 0 && letter !== letters[i - 1] ? [i] : []));
  if (swaps.length > 0 && random.chance(0.7)) {
    const i = random.pick(swaps);
    [letters[i - 1], letters[i]] = [letters[i] ?? '', letters[i - 1] ?? ''];
  } else {
    letters[random.int(0, letters.length - 1)] = random.pick([...alphabet]);
  }
  return letters.join('');
}
