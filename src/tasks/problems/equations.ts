/** Unknowns: simple_equations and number_sequence. */

import type { Random } from '../../random.ts';
import { scoreNumber } from '../parts/answer.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';
import { compute } from './arithmetic.ts';

/** times·x + plus = otherTimes·x + total; the first levels have times 1 and nothing on the right but the total. */
interface Equation {
  letter: string;
  times: number;
  plus: number;
  otherTimes: number;
  total: number;
}

export const simpleEquations = defineTask<Equation>({
  name: 'simple_equations',
  summary: 'solve a linear equation',
  pose(random, difficulty) {
    const letter = random.pick([...'xyzabn']);
    const size = level(difficulty, [9, 30, 20, 30, 99]);
    const smallest = level(difficulty, [1, 10, 1, 1, 1]);
    const solution = difficulty < 4 ? random.int(smallest - 1, size) : random.int(-size, size);
    // The second level is either a sum or a product of larger numbers; from the third on there are both.
    const product = difficulty > 2 || (difficulty === 2 && random.chance(0.5));
    const times = product ? random.int(2, level(difficulty, [1, 9, 9, 12, 30])) : 1;
    const plus = product && difficulty === 2 ? 0 : random.int(smallest, size) * (random.chance(0.5) ? 1 : -1);
    let otherTimes = 0;
    if (difficulty > 3)
      do otherTimes = random.int(2, level(difficulty, [0, 0, 0, 9, 30]));
      while (otherTimes === times);
    const meta = { letter, times, plus, otherTimes, total: (times - otherTimes) * solution + plus };
    const left = sided(coefficient(times, letter), plus);
    const right = otherTimes === 0 ? String(meta.total) : sided(coefficient(otherTimes, letter), meta.total);
    return { prompt: `Solve ${left} = ${right} for ${letter}. Answer with a number.`, meta };
  },
  work({ letter, times, plus, otherTimes, total }, pen) {
    let factor = times;
    if (otherTimes !== 0) {
      factor = compute(pen, '-', times, otherTimes);
      pen.note(`${sided(coefficient(factor, letter), plus)} = ${total}`);
    }
    let value = total;
    if (plus !== 0) value = compute(pen, plus > 0 ? '-' : '+', total, Math.abs(plus));
    if (factor !== 1) value = compute(pen, '/', value, factor);
    pen.say(`${letter}=${value}`);
    return String(value);
  },
  check: scoreNumber,
});

function coefficient(times: number, letter: string): string {
  return times === 1 ? letter : `${times}*${letter}`;
}

function sided(term: string, plus: number): string {
  if (plus === 0) return term;
  return `${term} ${plus > 0 ? '+' : '-'} ${Math.abs(plus)}`;
}

type Rule = 'add' | 'multiply' | 'growing' | 'previous' | 'turns';

export const numberSequence = defineTask<{ rule: Rule; shown: number[] }>({
  name: 'number_sequence',
  summary: 'find the next number of a sequence',
  pose(random, difficulty) {
    const rule = random.pick(
      level<readonly Rule[]>(difficulty, [
        ['add'],
        ['add'],
        ['add', 'multiply'],
        ['growing', 'multiply'],
        ['growing', 'previous', 'turns'],
      ]),
    );
    const shown = sequence(random, rule, level(difficulty, [9, 40, 99, 60, 200]), difficulty);
    return { prompt: `What comes next: ${shown.join(', ')}? Answer with a number.`, meta: { rule, shown } };
  },
  work: ({ rule, shown }, pen) => String(nextNumber(pen, rule, shown)),
  check: scoreNumber,
});

function sequence(random: Random, rule: Rule, size: number, difficulty: number): number[] {
  const length = level(difficulty, [3, 4, 4, 5, 7]);
  const start = random.int(1, size);
  const stride =
    random.int(1, level(difficulty, [5, 12, 50, 30, 60])) * (difficulty > 1 && random.chance(0.4) ? -1 : 1);
  const change = random.int(1, level(difficulty, [1, 1, 9, 9, 30]));
  const factor = random.int(2, 4);
  const numbers = [start];
  if (rule === 'previous') numbers.push(start + random.int(1, size));
  while (numbers.length < length) {
    const steps = numbers.length - 1;
    const last = numbers.at(-1) ?? 0;
    const next: Record<Rule, number> = {
      add: last + stride,
      multiply: last * factor,
      growing: last + stride + change * steps,
      previous: last + (numbers.at(-2) ?? 0),
      // Two strides by turns: +a, +b, +a, +b, ...
      turns: last + (steps % 2 === 0 ? stride : stride + change),
    };
    numbers.push(next[rule]);
  }
  return numbers;
}

function nextNumber(pen: Pen, rule: Rule, shown: readonly number[]): number {
  const [first = 0, second = 0, third = 0] = shown;
  const last = shown.at(-1) ?? 0;
  const before = shown.at(-2) ?? 0;
  switch (rule) {
    case 'add':
      return compute(pen, '+', last, compute(pen, '-', second, first));
    case 'multiply':
      return compute(pen, '*', last, compute(pen, '/', second, first));
    case 'growing': {
      const latest = compute(pen, '-', last, before);
      const change = compute(pen, '-', latest, compute(pen, '-', before, shown.at(-3) ?? 0));
      return compute(pen, '+', last, compute(pen, '+', latest, change));
    }
    case 'previous':
      pen.say(`${first}+${second}=${third}`);
      return compute(pen, '+', before, last);
    case 'turns': {
      const odd = compute(pen, '-', second, first);
      const even = compute(pen, '-', third, second);
      pen.say(`steps ${odd} and ${even} by turns`);
      return compute(pen, '+', last, shown.length % 2 === 1 ? odd : even);
    }
  }
}
