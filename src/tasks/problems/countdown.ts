/** countdown: reach a target with each of the given numbers once. Any expression that does so is right. */

import type { Random } from '../../random.ts';
import { readLine } from '../parts/answer.ts';
import {
  type Expression,
  exactValue,
  leavesOf,
  type Operator,
  parseExpression,
  writeExpression,
} from '../parts/expression.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';

interface Countdown {
  numbers: number[];
  target: number;
  /** One way to do it. */
  tree: Expression;
}

export const countdown = defineTask<Countdown>({
  name: 'countdown',
  summary: 'make a target from numbers, each used once',
  pose(random, difficulty) {
    const count = level(difficulty, [2, 3, 4, 5, 6]);
    const top = level(difficulty, [9, 9, 12, 25, 50]);
    const mostTarget = level(difficulty, [81, 100, 200, 500, 999]);
    for (;;) {
      const numbers = Array.from({ length: count }, () => random.int(1, top));
      const tree = combine(random, numbers);
      const value = exactValue(tree);
      if (value === undefined || value.bottom !== 1 || value.top < 1 || value.top > mostTarget) continue;
      const meta = { numbers: random.shuffle(numbers), target: value.top, tree };
      return {
        prompt: `Make ${meta.target} from the numbers ${meta.numbers.join(' ')} with + - * /, using each once. Answer with the expression.`,
        meta,
      };
    }
  },
  work({ target, tree }, pen) {
    pen.note(`target ${target}`);
    const { expression } = retrace(pen, tree);
    const text = writeExpression(expression);
    pen.say(text);
    return text;
  },
  check(response, _answer, { numbers, target }) {
    const line = readLine(response) ?? '';
    // People write "3*5=15"; only the expression before the sign is checked.
    const tree = parseExpression(line.split('=')[0] ?? '');
    if (tree === undefined || !sameNumbers(leavesOf(tree), numbers)) return 0;
    const value = exactValue(tree);
    return value !== undefined && value.bottom === 1 && value.top === target ? 1 : 0.1;
  },
});

/** A random tree over the numbers whose every part is a positive whole number. */
function combine(random: Random, numbers: readonly number[]): Expression {
  let parts = numbers.map((number): { tree: Expression; value: number } => ({ tree: number, value: number }));
  while (parts.length > 1) {
    const [a, b, ...others] = random.shuffle(parts);
    if (a === undefined || b === undefined) break;
    const [left, right] = a.value >= b.value ? [a, b] : [b, a];
    const possible: Operator[] = ['+', '*'];
    if (left.value > right.value) possible.push('-');
    if (right.value > 1 && left.value % right.value === 0) possible.push('/');
    const op = random.pick(possible);
    const value = {
      '+': left.value + right.value,
      '-': left.value - right.value,
      '*': left.value * right.value,
      '/': left.value / right.value,
    }[op];
    parts = [...others, { tree: { op, left: left.tree, right: right.tree }, value }];
  }
  return parts[0]?.tree ?? 0;
}

/** Says each operation with its result. A slip takes the wrong operation for the same claimed result: 3+5=15. */
function retrace(pen: Pen, tree: Expression): { expression: Expression; value: number } {
  if (typeof tree === 'number') return { expression: tree, value: tree };
  const left = retrace(pen, tree.left);
  const right = retrace(pen, tree.right);
  const exact = exactValue({ op: tree.op, left: left.value, right: right.value });
  const op = pen.choice<Operator>(tree.op, ['+', '-', '*']);
  const value = exact?.top ?? 0;
  const expression = { op, left: left.expression, right: right.expression };
  pen.say(`${left.value}${op}${right.value}=${value}`);
  return { expression, value };
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.toSorted((x, y) => x - y).join() === b.toSorted((x, y) => x - y).join();
}
