/**
 * The truth of every task, worked out again from nothing but the prompt's text by other means than the task's own:
 * JavaScript's evaluator, BigInt, Date, brute force. Answers must agree with it, and systematically spoilt answers
 * that it does not accept must never score 1.
 */
import { runInThisContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { allTasks } from './index.ts';

/** Whether a text is a right answer to a prompt. */
type Oracle = (prompt: string) => (text: string) => boolean;

const integers = (text: string) => (text.match(/-?\d+/g) ?? []).map(Number);
const evaluated = (text: string): number => Number(runInThisContext(text));
const between = (text: string, before: string, after: string) => text.split(before)[1]?.split(after)[0] ?? '';
const isNumber = (truth: number | bigint) => (text: string) =>
  /^[-+]?\d+$/.test(text.trim()) && BigInt(text) === BigInt(truth);
const isText = (truth: string) => (text: string) =>
  text.trim().toLowerCase().replace(/\s+/g, ' ') === truth.toLowerCase();
const sortedText = (items: readonly (string | number)[]) => [...items].map(String).sort().join();

const bigGcd = (a: bigint, b: bigint): bigint => (b === 0n ? a : bigGcd(b, a % b));
const isPrime = (n: number) =>
  n > 1 && Array.from({ length: Math.floor(Math.sqrt(n)) - 1 }, (_, i) => i + 2).every((d) => n % d !== 0);

const oracles: Record<string, Oracle> = {
  chain_sum: (prompt) => isNumber(evaluated(between(prompt, 'What is ', '?'))),
  products: (prompt) => isNumber(evaluated(between(prompt, 'What is ', '?'))),
  basic_arithmetic: (prompt) => isNumber(evaluated(between(prompt, 'What is ', '?'))),
  leg_counting(prompt) {
    const legs: Record<string, number> = {
      crab: 10,
      spider: 8,
      ant: 6,
      bee: 6,
      dog: 4,
      cat: 4,
      cow: 4,
      horse: 4,
      hen: 2,
      duck: 2,
      child: 2,
      snake: 0,
    };
    const found = [...prompt.matchAll(/(\d+) (child(?:ren)?|[a-z]+?)s?\b/g)];
    return isNumber(
      found.reduce(
        (sum, [, count, name = '']) => sum + Number(count) * (legs[name.replace('ren', '')] ?? Number.NaN),
        0,
      ),
    );
  },
  gcd: (prompt) => isNumber(integers(prompt).map(BigInt).reduce(bigGcd)),
  lcm: (prompt) =>
    isNumber(
      integers(prompt)
        .map(BigInt)
        .reduce((a, b) => (a * b) / bigGcd(a, b)),
    ),
  prime_factorization(prompt) {
    const [number] = integers(prompt);
    return (text) =>
      /^[\d* ]+$/.test(text) && text.split('*').every((part) => isPrime(Number(part))) && evaluated(text) === number;
  },
  fraction_simplification(prompt) {
    const [top = 0, bottom = 1] = integers(prompt);
    return (text) => {
      const [a = 0, b = 1] = integers(text);
      const shared = Array.from({ length: Math.min(a, b) }, (_, i) => i + 1).filter((d) => a % d === 0 && b % d === 0);
      return /^\d+(\/\d+)?$/.test(text.trim()) && a * bottom === b * top && shared.length === 1;
    };
  },
  count_bits: (prompt) =>
    isNumber(
      BigInt(integers(prompt)[0] ?? 0)
        .toString(2)
        .replaceAll('0', '').length,
    ),
  base_conversion(prompt) {
    const [, digits = '', from, to] = /Write (\w+) \(base (\d+)\) in base (\d+)/.exec(prompt) ?? [];
    const place = (digit: string) => BigInt('0123456789abcdef'.indexOf(digit));
    const number = [...digits]
      .reverse()
      .reduce((sum, digit, i) => sum + place(digit) * BigInt(from ?? 10) ** BigInt(i), 0n);
    return (text) => text.replace(/^0+/, '') === number.toString(Number(to));
  },
  simple_equations(prompt) {
    const [, left = '', right = '', letter = ''] = /Solve (.*) = (.*) for (\w)/.exec(prompt) ?? [];
    // Both sides are straight lines: two points of each are enough.
    const at = (side: string, x: number) => evaluated(side.replaceAll(letter, `(${x})`));
    const slope = at(left, 1) - at(left, 0) - (at(right, 1) - at(right, 0));
    return isNumber((at(right, 0) - at(left, 0)) / slope);
  },
  number_sequence: (prompt) => isNumber(next(integers(between(prompt, 'next: ', '?')))),
  countdown(prompt) {
    const [target, ...numbers] = integers(between(prompt, 'Make ', ' with'));
    return (text) => {
      if (!/^[\d+\-*/() ]+$/.test(text) || sortedText(text.match(/\d+/g) ?? []) !== sortedText(numbers)) return false;
      try {
        return Math.abs(evaluated(text) - (target ?? 0)) < 1e-9;
      } catch {
        return false;
      }
    };
  },
  number_sorting(prompt) {
    const up = integers(prompt).sort((a, b) => a - b);
    const truth = (prompt.includes('largest to smallest') ? up.reverse() : up).join();
    return (text) => /^[\d -]+$/.test(text) && integers(text).join() === truth;
  },
  word_sorting(prompt) {
    const up = between(prompt, 'order: ', '.').split(' ').sort();
    return isText((prompt.includes('reverse') ? up.reverse() : up).join(' '));
  },
  letter_counting(prompt) {
    const [, letter = '', text = ''] = /letter (\w) in "([^"]*)"/.exec(prompt) ?? [];
    return isNumber(text.split(letter).length - 1);
  },
  spell_backward: (prompt) => isText([...between(prompt, '"', '"')].reverse().join('')),
  palindrome(prompt) {
    const letters = between(prompt, 'letters ', ' into').split(' ');
    return (text) => sortedText([...text]) === sortedText(letters) && [...text].reverse().join('') === text;
  },
  caesar_cipher(prompt) {
    const [, text = '', way, by] = /"([^"]*)" (forward|back) by (\d+)/.exec(prompt) ?? [];
    const shift = way === 'back' ? 26 - Number(by) : Number(by);
    return isText(
      text.replace(/[a-z]/g, (letter) => String.fromCharCode(((letter.charCodeAt(0) - 97 + shift) % 26) + 97)),
    );
  },
  mini_sudoku(prompt) {
    const cells = prompt
      .split('\n')
      .slice(1, 5)
      .join(' ')
      .split(' ')
      .map((cell) => (cell === '_' ? 0 : Number(cell)));
    const solutions = sudokuSolutions(cells);
    expect(solutions).toHaveLength(1);
    return (text) => /^[1-4\s]+$/.test(text) && text.replace(/\s/g, '') === solutions[0];
  },
  propositional_logic(prompt) {
    const names = Object.fromEntries(
      [...prompt.matchAll(/([A-Z]) is ([TF])\./g)].map(([, name, value]) => [name, value === 'T']),
    );
    const formula = between(prompt, 'What is ', '?').replaceAll('implies', '<=').replaceAll('xor', '!=');
    const script = formula
      .replaceAll('and', '&&')
      .replaceAll('not ', '!')
      .replace(/\bor\b/g, '||');
    const valued = script.replace(/[A-Z]/g, (name) => String(names[name]));
    return isText(runInThisContext(`(${valued}) ? "T" : "F"`));
  },
  syllogism: (prompt) => isText(follows(prompt) ? 'yes' : 'no'),
  family_relationships: (prompt) => isText(kinship(prompt)),
  time_arithmetic(prompt) {
    const [, clock = '', moves = ''] = /is (\d\d:\d\d) (.*)\?/.exec(prompt) ?? [];
    const time = new Date(`2001-06-15T${clock}:00Z`);
    for (const [, sign, text = ''] of moves.matchAll(/(plus|minus) ([^pm]*(?:minutes?)?)/g)) {
      const hours = Number(/(\d+) hour/.exec(text)?.[1] ?? 0);
      const minutes = Number(/(\d+) minute/.exec(text)?.[1] ?? 0);
      time.setTime(time.getTime() + (sign === 'plus' ? 1 : -1) * (hours * 60 + minutes) * 60_000);
    }
    return (text) => /^\d{1,2}:\d\d$/.test(text) && text.padStart(5, '0') === time.toISOString().slice(11, 16);
  },
  weekday_arithmetic(prompt) {
    const names = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
    const start = names.findIndex((name) => prompt.includes(`${name}?`));
    // 2023-01-01 was a Sunday.
    const days = [...prompt.matchAll(/(\d+) days? (after|before)/g)].map(
      ([, n, way]) => Number(n) * (way === 'after' ? 1 : -1),
    );
    const date = new Date(Date.UTC(2023, 0, 1 + start + days.reduce((a, b) => a + b, 0)));
    return isText(names[date.getUTCDay()] ?? '');
  },
  date_arithmetic(prompt) {
    const [, n, way, from = ''] = /is (\d+) days? (after|before) (\S+)\?/.exec(prompt) ?? [];
    const date = new Date(`${from}T00:00:00Z`);
    date.setUTCDate(date.getUTCDate() + (way === 'after' ? 1 : -1) * Number(n));
    const truth = date.toISOString().slice(0, 10);
    return (text) =>
      text
        .split('-')
        .map((part, i) => part.padStart(i === 0 ? 4 : 2, '0'))
        .join('-') === truth;
  },
};

/** The next number by the simplest pattern that fits all that is shown. */
function next(shown: number[]): number {
  const differences = (numbers: number[]) => numbers.slice(1).map((number, i) => number - (numbers[i] ?? 0));
  const constant = (numbers: number[]) => new Set(numbers).size === 1;
  const last = shown.at(-1) ?? 0;
  const first = differences(shown);
  const second = differences(first);
  const ratio = last / (shown.at(-2) ?? 1);
  if (constant(first)) return last + (first[0] ?? 0);
  if (constant(second)) return last + (first.at(-1) ?? 0) + (second[0] ?? 0);
  if (shown.slice(1).every((number, i) => number === (shown[i] ?? 0) * ratio)) return last * ratio;
  if (shown.slice(2).every((number, i) => number === (shown[i] ?? 0) + (shown[i + 1] ?? 0)))
    return last + (shown.at(-2) ?? 0);
  if (constant(first.filter((_, i) => i % 2 === 0)) && constant(first.filter((_, i) => i % 2 === 1))) {
    return last + (first.at(-2) ?? 0);
  }
  return Number.NaN;
}

/** Every way to fill the grid, by trying all digits in the blanks from first to last. */
function sudokuSolutions(cells: number[]): string[] {
  const blank = cells.indexOf(0);
  const unit = (i: number, j: number) =>
    i >> 2 === j >> 2 || i % 4 === j % 4 || (i >> 3 === j >> 3 && (i % 4) >> 1 === (j % 4) >> 1);
  const clash = (grid: number[]) => grid.some((a, i) => a > 0 && grid.some((b, j) => j > i && a === b && unit(i, j)));
  if (clash(cells)) return [];
  if (blank < 0) return [cells.join('')];
  return [1, 2, 3, 4].flatMap((digit) => sudokuSolutions(cells.with(blank, digit)));
}

/**
 * Entailment by models: a kind of thing is a set of names; it may exist unless an "all" or a "no" forbids it. A
 * universal conclusion follows when no kind that may exist breaks it; "some A are B" follows from "some C are D" when
 * every kind that may exist and is C and D is A and B too.
 */
function follows(prompt: string): boolean {
  const statements = [...prompt.matchAll(/(all|no|some) (\w+) are (\w+)/gi)].map(([, how = '', a = '', b = '']) => ({
    how: how.toLowerCase(),
    a,
    b,
  }));
  const question = statements.at(-1) ?? { how: '', a: '', b: '' };
  const premises = statements.slice(0, -1);
  const names = [...new Set(statements.flatMap(({ a, b }) => [a, b]))];
  const kinds = Array.from(
    { length: 2 ** names.length },
    (_, bits) => new Set(names.filter((_, i) => (bits >> i) & 1)),
  );
  const possible = kinds.filter((kind) =>
    premises.every(({ how, a, b }) => how === 'some' || !kind.has(a) || kind.has(b) === (how === 'all')),
  );
  if (question.how === 'all') return possible.every((kind) => !kind.has(question.a) || kind.has(question.b));
  if (question.how === 'no') return possible.every((kind) => !kind.has(question.a) || !kind.has(question.b));
  return premises.some(
    ({ how, a, b }) =>
      how === 'some' &&
      possible.every((kind) => !kind.has(a) || !kind.has(b) || (kind.has(question.a) && kind.has(question.b))),
  );
}

/** Walks from the first person to the second through parents, siblings and children, and names the walk. */
function kinship(prompt: string): string {
  const edges = new Map<string, { to: string; step: 'u' | 's' | 'd' }[]>();
  const add = (from: string, to: string, step: 'u' | 's' | 'd') =>
    edges.set(from, [...(edges.get(from) ?? []), { to, step }]);
  for (const [, a = '', word = '', b = ''] of prompt.matchAll(/(\w+) is the (\w+) of (\w+)\./g)) {
    const step = /son|daughter/.test(word) ? 'u' : /brother|sister/.test(word) ? 's' : 'd';
    add(a, b, step);
    add(b, a, step === 'u' ? 'd' : step === 'd' ? 'u' : 's');
  }
  const [, from = '', to = ''] = /What is (\w+) to (\w+)\?/.exec(prompt) ?? [];
  let walks = [{ at: from, path: '', seen: [from] }];
  while (!walks.some(({ at }) => at === to)) {
    walks = walks.flatMap(({ at, path, seen }) =>
      (edges.get(at) ?? []).flatMap((edge) =>
        seen.includes(edge.to) ? [] : [{ at: edge.to, path: path + edge.step, seen: [...seen, edge.to] }],
      ),
    );
  }
  const path = walks.find(({ at }) => at === to)?.path ?? '';
  const female = 'Ann Amy Eva Ida Joy Kim Lea Mia Nina Rose Sue Tina Vera Zoe'.includes(from);
  const [up, across, down] = ['u', 's', 'd'].map((step) => path.split(step).length - 1) as [number, number, number];
  const great = (count: number) => 'great-'.repeat(Math.max(0, count));
  if (across === 1 && up === 1 && down === 1) return 'cousin';
  if (across === 1 && down > 0) return great(down - 1) + (female ? 'aunt' : 'uncle');
  if (across === 1 && up > 0) return great(up - 1) + (female ? 'niece' : 'nephew');
  if (across === 1) return female ? 'sister' : 'brother';
  const grand = up + down > 1 ? 'grand' : '';
  const word = up > 0 ? (female ? 'daughter' : 'son') : female ? 'mother' : 'father';
  return great(up + down - 2) + grand + word;
}

/** Each character replaced, dropped and doubled; neighbours swapped; things added; other answers altogether. */
function spoilt(answer: string): string[] {
  const other = (char: string) => (/\d/.test(char) ? String((Number(char) + 1) % 10) : char === 'a' ? 'b' : 'a');
  const edits = [...answer].flatMap((char, i) => {
    const [head, tail] = [answer.slice(0, i), answer.slice(i + 1)];
    const swapped = i > 0 ? [`${head.slice(0, -1)}${char}${head.at(-1)}${tail}`] : [];
    return [head + other(char) + tail, head + tail, head + char + char + tail, ...swapped];
  });
  return [...edits, `${answer}1`, `-${answer}`, '', '0', 'yes', 'no', 'T', 'F', 'I do not know', 'cousin'];
}

describe.each(allTasks.map((task) => [task.name, task] as const))('the truth of %s', (name, task) => {
  const oracle = oracles[name];

  it('is the answer, at every difficulty', () => {
    expect(oracle).toBeDefined();
    for (let difficulty = 1; difficulty <= task.levels; difficulty++) {
      for (let seed = 0; seed < 400; seed++) {
        const example = task.generate(seed, difficulty);
        const accepts = oracle?.(example.prompt);
        if (!accepts?.(example.answer))
          expect.fail(`${name} ${seed} ${difficulty}: ${example.prompt} => ${example.answer}`);
      }
    }
  });

  it('is told from spoilt answers, tagged and bare', () => {
    let rejected = 0;
    for (let seed = 1000; seed < 1060; seed++) {
      const example = task.generate(seed, 1 + (seed % task.levels));
      const accepts = oracle?.(example.prompt);
      for (const wrong of spoilt(example.answer)) {
        if (accepts?.(wrong)) continue;
        rejected++;
        for (const response of [`<answer>${wrong}</answer>`, wrong]) {
          const score = task.score(response, example);
          if (!(score >= 0 && score < 1)) expect.fail(`${example.prompt}: "${response}" scored ${score}`);
        }
      }
    }
    expect(rejected).toBeGreaterThan(300);
  });
});
