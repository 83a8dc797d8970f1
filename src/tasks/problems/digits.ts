/** Number systems: count_bits and base_conversion. */
import { readLine, scoreNumber } from '../parts/answer.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';

/** Repeated division; the remainders from last to first are the digits. */
function toBase(pen: Pen, number: number, base: number): string {
  let rest = number;
  let digits = '';
  do {
    const right = rest % base;
    const quotient = Math.floor(rest / base);
    // No number begins with a zero, not even a wrong one.
    const remainder = pen.value(right, (random) => random.int(quotient === 0 ? 1 : 0, base - 1));
    pen.say(`${rest}/${base}=${quotient} r ${remainder.toString(base)}`);
    digits = remainder.toString(base) + digits;
    rest = quotient;
  } while (rest > 0);
  return digits;
}

/** Horner's rule from the first digit on. */
function fromBase(pen: Pen, digits: string, base: number): number {
  let value = Number.parseInt(digits[0] ?? '0', base);
  for (const digit of digits.slice(1)) {
    const next = Number.parseInt(digit, base);
    const result = pen.number(value * base + next);
    pen.say(`${value}*${base}+${next}=${result}`);
    value = result;
  }
  return value;
}

export const countBits = defineTask<{ number: number }>({
  name: 'count_bits',
  summary: 'count the ones in the binary form of a number',
  pose(random, difficulty) {
    const [bottom, top] = level(difficulty, [
      [1, 63],
      [64, 255],
      [256, 1023],
      [1024, 8191],
      [8192, 99999],
    ] as const);
    const number = random.int(bottom, top);
    return { prompt: `How many ones are in the binary form of ${number}? Answer with a number.`, meta: { number } };
  },
  work({ number }, pen) {
    const binary = toBase(pen, number, 2);
    const ones = pen.number([...binary].filter((bit) => bit === '1').length);
    pen.say(`${binary}: ones ${ones}`);
    return String(ones);
  },
  check: scoreNumber,
});

export const baseConversion = defineTask<{ digits: string; from: number; to: number }>({
  name: 'base_conversion',
  summary: 'write a number in another base',
  pose(random, difficulty) {
    const [bottom, top] = level(difficulty, [
      [2, 31],
      [16, 99],
      [200, 999],
      [500, 4000],
      [5000, 99999],
    ] as const);
    const number = random.int(bottom, top);
    const others = level(difficulty, [
      [2],
      [2, 3, 4],
      [3, 4, 5, 6, 7, 8, 9],
      [5, 6, 7, 8, 9],
      [6, 7, 8, 9, 11, 12, 16],
    ]);
    const [first = 10, second = 10] = random.sample(others, 2);
    // From the fourth level on neither side is decimal, so that both conversions are needed.
    const [from, to] = difficulty > 3 ? [first, second] : random.shuffle([first, 10]);
    const meta = { digits: number.toString(from), from: from ?? 10, to: to ?? 10 };
    return { prompt: `Write ${meta.digits} (base ${from}) in base ${to}. Answer with the digits.`, meta };
  },
  work({ digits, from, to }, pen) {
    const number = from === 10 ? Number(digits) : fromBase(pen, digits, from);
    const answer = to === 10 ? String(number) : toBase(pen, number, to);
    pen.say(`${digits} base ${from} = base ${to}: ${answer}`);
    return answer;
  },
  check(response, answer) {
    const last = readLine(response)?.toLowerCase().split(/\s+/).at(-1) ?? '';
    return last.replace(/^0+(?=\w)/, '') === answer ? 1 : 0;
  },
});
