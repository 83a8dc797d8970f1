/** Arithmetic: chain_sum, products, basic_arithmetic and leg_counting. */

import type { Random } from '../../random.ts';
import { scoreNumber } from '../parts/answer.ts';
import { type Expression, type Operator, writeExpression } from '../parts/expression.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';

export const chainSum = defineTask<{ first: number; rest: { op: '+' | '-'; value: number }[] }>({
  name: 'chain_sum',
  summary: 'add and subtract a chain of numbers',
  pose(random, difficulty) {
    const terms = level(difficulty, [2, 3, 4, 5, 6]);
    const top = level(difficulty, [9, 9, 99, 999, 9999]);
    const bottom = difficulty < 3 ? 0 : (top + 1) / 10;
    let first = random.int(bottom, top);
    const rest = Array.from({ length: terms - 1 }, () => ({
      op: random.pick(['+', '-'] as const),
      value: random.int(bottom, top),
    }));
    const only = rest[0];
    // Two one-digit numbers: the first level stays clear of negative results.
    if (difficulty === 1 && only !== undefined && only.op === '-' && only.value > first) {
      [first, only.value] = [only.value, first];
    }
    const sum = rest.reduce((text, { op, value }) => `${text} ${op} ${value}`, String(first));
    return { prompt: `What is ${sum}? Answer with a number.`, meta: { first, rest } };
  },
  work({ first, rest }, pen) {
    let total = first;
    for (const { op, value } of rest) total = compute(pen, op, total, value);
    return String(total);
  },
  check: scoreNumber,
});

export const products = defineTask<{ a: number; b: number }>({
  name: 'products',
  summary: 'multiply two numbers',
  pose(random, difficulty) {
    const digits = (count: number) => random.int(count === 1 ? 0 : 10 ** (count - 1), 10 ** count - 1);
    const [left, right] = level(difficulty, [
      [1, 1],
      [2, 1],
      [2, 2],
      [3, 2],
      [3, 3],
    ] as const);
    const meta = { a: digits(left), b: difficulty === 1 ? digits(right) : Math.max(2, digits(right)) };
    return { prompt: `What is ${meta.a} * ${meta.b}? Answer with a number.`, meta };
  },
  work({ a, b }, pen) {
    // Long multiplication: one partial product for each place of the number that is taken apart.
    const [whole, apart] = b < 10 ? [b, a] : [a, b];
    const places = [...String(apart)].map((digit, i, all) => Number(digit) * 10 ** (all.length - 1 - i));
    const parts = places.filter((part) => part !== 0);
    if (parts.length < 2) return String(compute(pen, '*', a, b));
    const partials = parts.map((part) => compute(pen, '*', whole, part));
    return String(partials.reduce((total, partial) => compute(pen, '+', total, partial)));
  },
  check: scoreNumber,
});

export const basicArithmetic = defineTask<{ tree: Expression }>({
  name: 'basic_arithmetic',
  summary: 'evaluate an expression with precedence and parentheses',
  pose(random, difficulty) {
    const operators = level(difficulty, [2, 3, 4, 5, 6]);
    const top = level(difficulty, [5, 9, 12, 20, 30]);
    const tree = difficulty === 1 ? flatTree(random, top) : randomTree(random, operators, top, difficulty > 2);
    return { prompt: `What is ${writeExpression(tree, ' ')}? Answer with a number.`, meta: { tree } };
  },
  work: ({ tree }, pen) => String(reduce(pen, tree)),
  check: scoreNumber,
});

/** a + b * c or a * b - c and the like: precedence, but no parentheses. */
function flatTree(random: Random, top: number): Expression {
  const product: Expression = { op: '*', left: random.int(1, top), right: random.int(1, top) };
  const other = random.int(1, top);
  const op = random.pick(['+', '-'] as const);
  return random.chance(0.5) ? { op, left: product, right: other } : { op: '+', left: other, right: product };
}

function randomTree(random: Random, operators: number, top: number, division: boolean): Expression {
  if (operators === 0) return random.int(1, top);
  // Divisions stand at the leaves, where they can be made to come out whole.
  if (operators === 1 && division && random.chance(0.4)) {
    const divisor = random.int(2, 9);
    return { op: '/', left: divisor * random.int(1, top), right: divisor };
  }
  const inLeft = random.int(0, operators - 1);
  return {
    op: random.pick(['+', '-', '*'] as const),
    left: randomTree(random, inLeft, top, division),
    right: randomTree(random, operators - 1 - inLeft, top, division),
  };
}

function reduce(pen: Pen, tree: Expression): number {
  if (typeof tree === 'number') return tree;
  const left = reduce(pen, tree.left);
  return compute(pen, tree.op, left, reduce(pen, tree.right));
}

/** One step of calculation: `3+4=7`. A negative operand is put in parentheses. */
export function compute(pen: Pen, op: Operator, a: number, b: number): number {
  const result = pen.number(apply(op, a, b));
  pen.say(`${a}${op}${b < 0 ? `(${b})` : b}=${result}`);
  return result;
}

function apply(op: Operator, a: number, b: number): number {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b || 0;
    case '/':
      // Comes out whole in every right working; after a slip it need not.
      return b === 0 ? 0 : Math.trunc(a / b) || 0;
  }
}

const animals: readonly { one: string; many: string; legs: number }[] = [
  { one: 'dog', many: 'dogs', legs: 4 },
  { one: 'cat', many: 'cats', legs: 4 },
  { one: 'cow', many: 'cows', legs: 4 },
  { one: 'horse', many: 'horses', legs: 4 },
  { one: 'hen', many: 'hens', legs: 2 },
  { one: 'duck', many: 'ducks', legs: 2 },
  { one: 'ant', many: 'ants', legs: 6 },
  { one: 'bee', many: 'bees', legs: 6 },
  { one: 'spider', many: 'spiders', legs: 8 },
  { one: 'crab', many: 'crabs', legs: 10 },
  { one: 'snake', many: 'snakes', legs: 0 },
  { one: 'child', many: 'children', legs: 2 },
];

export const legCounting = defineTask<{ herd: { count: number; name: string; legs: number }[] }>({
  name: 'leg_counting',
  summary: 'count the legs of a group of animals',
  pose(random, difficulty) {
    const kinds = level(difficulty, [1, 2, 3, 4, 6]);
    const most = level(difficulty, [9, 9, 12, 20, 50]);
    const herd = random.sample(animals, kinds).map(({ one, many, legs }) => {
      const count = random.int(1, most);
      return { count, name: count === 1 ? one : many, legs };
    });
    const names = herd.map(({ count, name }) => `${count} ${name}`);
    const list = names.length === 1 ? names[0] : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
    return { prompt: `How many legs are there: ${list}? Answer with a number.`, meta: { herd } };
  },
  work({ herd }, pen) {
    const legs = herd.map(({ count, legs: each }) => compute(pen, '*', count, each));
    return String(legs.reduce((total, more) => compute(pen, '+', total, more)));
  },
  check: scoreNumber,
});
