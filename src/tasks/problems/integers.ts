/** Whole numbers: gcd, lcm, prime_factorization and fraction_simplification. */

import type { Random } from '../../random.ts';
import { readLine, scoreNumber, squeeze } from '../parts/answer.ts';
import { nearMiss, type Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';
import { compute } from './arithmetic.ts';

/** Numbers that share a factor more often than chance would have it. */
function relatedNumbers(random: Random, count: number, top: number): number[] {
  const shared = random.int(1, Math.max(2, Math.floor(Math.sqrt(top))));
  const multiples = () => Array.from({ length: count }, () => shared * random.int(1, Math.floor(top / shared)));
  let numbers = multiples();
  while (new Set(numbers).size < count) numbers = multiples();
  return numbers;
}

/** Euclid's algorithm: 48 mod 18 = 12, 18 mod 12 = 6, 12 mod 6 = 0. */
function euclid(pen: Pen, a: number, b: number): number {
  let [larger, smaller] = [Math.max(a, b), Math.min(a, b)];
  while (smaller !== 0) {
    const divisor = smaller;
    const right = larger % divisor;
    const remainder = pen.value(right, (random) => wrongRemainder(random, divisor, right));
    pen.say(`${larger} mod ${divisor} = ${remainder}`);
    [larger, smaller] = [divisor, remainder];
  }
  return larger;
}

/**
 * A wrong remainder below the divisor, so that the working still ends. Of a few tries it is one that needs as many
 * steps as the right one, so that wrong workings are not longer.
 */
function wrongRemainder(random: Random, divisor: number, right: number): number {
  const tries = Array.from({ length: 8 }, () => random.int(0, divisor - 1));
  return tries.find((other) => other !== right && steps(divisor, other) === steps(divisor, right)) ?? tries[0] ?? 0;
}

function steps(larger: number, smaller: number): number {
  return smaller === 0 ? 0 : 1 + steps(smaller, larger % smaller);
}

interface Numbers {
  numbers: number[];
}

function posed(random: Random, difficulty: number, wanted: string, tops: readonly number[]) {
  const count = level(difficulty, [2, 2, 2, 3, 3]);
  const numbers = relatedNumbers(random, count, level(difficulty, tops));
  const list = `${numbers.slice(0, -1).join(', ')} and ${numbers.at(-1)}`;
  return { prompt: `What is the ${wanted} of ${list}? Answer with a number.`, meta: { numbers } };
}

export const gcdTask = defineTask<Numbers>({
  name: 'gcd',
  summary: 'greatest common divisor',
  pose: (random, difficulty) => posed(random, difficulty, 'greatest common divisor', [12, 60, 400, 1000, 9999]),
  work(meta, pen) {
    const found = meta.numbers.reduce((a, b) => euclid(pen, a, b));
    return concluded(pen, 'gcd', found);
  },
  check: scoreNumber,
});

export const lcmTask = defineTask<Numbers>({
  name: 'lcm',
  summary: 'least common multiple',
  pose: (random, difficulty) => posed(random, difficulty, 'least common multiple', [9, 20, 60, 60, 200]),
  work(meta, pen) {
    const found = meta.numbers.reduce((a, b) => compute(pen, '*', compute(pen, '/', a, euclid(pen, a, b)), b));
    return concluded(pen, 'lcm', found);
  },
  check: scoreNumber,
});

function concluded(pen: Pen, name: string, found: number): string {
  const result = pen.number(found);
  pen.say(`${name} = ${result}`);
  return String(result);
}

export const primeFactorization = defineTask<{ number: number }>({
  name: 'prime_factorization',
  summary: 'write a number as a product of primes',
  pose(random, difficulty) {
    const [bottom, top] = level(difficulty, [
      [4, 60],
      [30, 200],
      [100, 1000],
      [1000, 5000],
      [5000, 60000],
    ] as const);
    let number = random.int(bottom, top);
    // Primes are part of the task, but most numbers should have something to take out.
    for (let i = 0; i < 3 && smallestFactor(number) === number; i++) number = random.int(bottom, top);
    return { prompt: `Write ${number} as a product of primes, like 2*2*3. Answer with the product.`, meta: { number } };
  },
  work({ number }, pen) {
    const primes: number[] = [];
    let rest = number;
    for (;;) {
      const factor = smallestFactor(rest);
      if (factor === rest) break;
      const right = rest / factor;
      const quotient = pen.value(right, (random) => Math.max(2, nearMiss(random, right)));
      pen.say(`${rest}/${factor}=${quotient}`);
      primes.push(factor);
      rest = quotient;
    }
    // A number that is prime already: the one thing to get wrong is to take it apart.
    if (primes.length === 0) {
      const split = pen.value(0, (random) => random.pick([2, 3, 5, 7]));
      if (split > 0) {
        rest = Math.max(2, Math.trunc(rest / split));
        pen.say(`${number}/${split}=${rest}`);
        primes.push(split);
      }
    }
    pen.say(`${rest} is prime`);
    const product = [...primes, rest].join('*');
    pen.say(`${number}=${product}`);
    return product;
  },
  check(response, _answer, { number }) {
    const line = readLine(response)?.split('=').at(-1)?.replaceAll('×', '*').replaceAll(/\bx\b/g, '*') ?? '';
    const factors = line.split('*').map((part) => part.trim());
    if (!factors.every((factor) => /^\d{1,9}$/.test(factor))) return 0;
    const values = factors.map(Number);
    if (values.some((value) => value < 2) || values.reduce((a, b) => a * b, 1) !== number) return 0;
    if (values.every((value) => smallestFactor(value) === value)) return 1;
    // A true product that is not taken apart all the way is a start; the number itself is not.
    return values.length > 1 ? 0.25 : 0;
  },
});

function smallestFactor(number: number): number {
  for (let factor = 2; factor * factor <= number; factor++) if (number % factor === 0) return factor;
  return number;
}

export const fractionSimplification = defineTask<{ top: number; bottom: number }>({
  name: 'fraction_simplification',
  summary: 'reduce a fraction to lowest terms',
  pose(random, difficulty) {
    const largest = level(difficulty, [5, 9, 20, 60, 200]);
    const factor = random.int(2, level(difficulty, [5, 9, 20, 50, 99]));
    const top = factor * random.int(1, largest);
    let bottom = factor * random.int(2, largest);
    while (bottom === top) bottom = factor * random.int(2, largest);
    return { prompt: `Simplify the fraction ${top}/${bottom}. Answer as a/b in lowest terms.`, meta: { top, bottom } };
  },
  work({ top, bottom }, pen) {
    const shared = euclid(pen, top, bottom);
    const answer = `${compute(pen, '/', top, shared)}/${compute(pen, '/', bottom, shared)}`;
    pen.say(`${top}/${bottom} = ${answer}`);
    return answer;
  },
  check(response, answer, { top, bottom }) {
    const line = squeeze(readLine(response) ?? '');
    const match = /(?<![\d.-])(\d{1,9})\s*\/\s*(\d{1,9})$/.exec(line);
    // A fraction that is a whole number may be given as one.
    if (match === null) return `${line}/1` === answer ? 1 : 0;
    const [a, b] = [Number(match[1]), Number(match[2])];
    if (`${a}/${b}` === answer) return 1;
    // Equal in value and smaller than what was given, but not reduced all the way.
    return b > 0 && a * bottom === b * top && b < bottom ? 0.25 : 0;
  },
});
