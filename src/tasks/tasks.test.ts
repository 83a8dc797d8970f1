import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { allTasks, respond, task } from './index.ts';

const cases = allTasks.map((each) => [each.name, each] as const);

it('there are at least 22 tasks, with names of their own', () => {
  expect(allTasks.length).toBeGreaterThanOrEqual(22);
  expect(new Set(allTasks.map((each) => each.name)).size).toBe(allTasks.length);
});

describe.each(cases)('%s', (name, each) => {
  const levels = Array.from({ length: each.levels }, (_, i) => i + 1);

  it('gives its own answer 1: bare, in tags, after thinking, in prose', () => {
    for (const difficulty of levels) {
      for (let seed = 0; seed < 300; seed++) {
        const example = each.generate(seed, difficulty);
        const { answer } = example;
        const forms = [
          answer,
          `<answer>${answer}</answer>`,
          `<think>\nLet me see: 12, 7, no.\n</think>\n<answer>\n${answer}\n</answer>`,
          `First I thought of 99.\nThe answer is ${answer}.`,
          `<think>hm, 5</think>\nAnswer: ${answer}\n`,
          `<answer>no idea</answer> wait, <answer>${answer}</answer>`,
        ];
        for (const form of forms) {
          if (each.score(form, example) !== 1)
            expect.fail(`${name} ${seed} ${difficulty}: "${form}" for ${example.prompt}`);
        }
      }
    }
  });

  it('is the same under the same seed and difficulty, and survives JSON', () => {
    for (const difficulty of levels) {
      const example = each.generate(123, difficulty);
      expect(each.generate(123, difficulty)).toEqual(example);
      const stored = JSON.parse(JSON.stringify(example));
      expect(stored).toEqual(example);
      expect(each.score(`<answer>${example.answer}</answer>`, stored)).toBe(1);
      expect(each.solve(stored)).toEqual(each.solve(example));
    }
  });

  it('grows with difficulty and has many prompts', () => {
    let before = 0;
    for (const difficulty of levels) {
      const examples = Array.from({ length: 400 }, (_, seed) => each.generate(seed, difficulty));
      const size = examples.reduce((sum, e) => sum + e.prompt.length + each.solve(e).join('\n').length, 0) / 400;
      expect(size).toBeGreaterThan(before);
      before = size;
      expect(new Set(examples.map((e) => e.prompt)).size).toBeGreaterThan(
        difficulty === 1 ? 40 : difficulty === 2 ? 100 : 250,
      );
    }
  });

  it('works its problems in short steps that end in the answer', () => {
    for (const difficulty of levels) {
      for (let seed = 0; seed < 40; seed++) {
        const example = each.generate(seed, difficulty);
        const solution = each.solution(example);
        expect(solution.answer).toBe(example.answer);
        expect(solution.steps.length).toBeGreaterThan(0);
        expect(solution.steps.every((step) => step.label >= 0 && !step.text.includes('\n') && step.text !== '')).toBe(
          true,
        );
        expect(each.solve(example).at(-1)?.endsWith(example.answer)).toBe(true);
        expect(each.score(respond(solution), example)).toBe(1);
        expect(each.score(respond(solution, 'steps'), example)).toBe(1);
      }
    }
  });

  it('goes wrong at one step, which is marked with all that follow, and the verifier agrees', () => {
    let made = 0;
    for (const difficulty of levels) {
      for (let seed = 0; seed < 40; seed++) {
        const example = each.generate(seed, difficulty);
        const wrong = each.wrongSolution(example, seed);
        if (wrong === undefined) continue;
        made++;
        expect(each.wrongSolution(example, seed)).toEqual(wrong);
        const graded = each.score(respond(wrong), example);
        expect(graded).toBeLessThan(1);
        expect(graded).toBe(wrong.score);
        // Before the slip the working is word for word the right one; from the slip on every label is −1.
        const right = each.solution(example).steps;
        const slip = wrong.steps.findIndex((step) => step.label === -1);
        expect(slip).toBeGreaterThanOrEqual(0);
        expect(wrong.steps.slice(0, slip)).toEqual(right.slice(0, slip));
        expect(wrong.steps[slip]?.text).not.toBe(right[slip]?.text);
        expect(wrong.steps.slice(slip).every((step) => step.label === -1)).toBe(true);
      }
    }
    expect(made).toBeGreaterThanOrEqual(0.97 * 40 * levels.length);
  });

  it('never fails on odd responses', () => {
    const example = each.generate(5, 2);
    const odd = [
      '',
      ' ',
      '<answer></answer>',
      '<answer>',
      '</answer><answer>',
      '<think>',
      '\u0000',
      '🙂',
      '((((',
      '1/0',
      '-',
      '= = =',
      'NaN',
      '9'.repeat(5000),
    ];
    for (const response of odd) expect(each.score(response, example)).toBeLessThan(1);
  });

  it('refuses seeds and difficulties that are none', () => {
    for (const difficulty of [0, 1.5, each.levels + 1, Number.NaN]) {
      expect(() => each.generate(1, difficulty)).toThrow(UserError);
    }
    expect(() => each.generate(0.5, 1)).toThrow(UserError);
  });
});

describe('first levels', () => {
  it('are really small', () => {
    for (let seed = 0; seed < 200; seed++) {
      const sum = task('chain_sum').generate(seed, 1);
      expect(sum.prompt).toMatch(/^What is \d [+-] \d\? Answer with a number\.$/);
      expect(Number(sum.answer)).toBeGreaterThanOrEqual(0);
      expect(task('spell_backward').generate(seed, 1).answer).toHaveLength(3);
      expect(task('mini_sudoku').generate(seed, 1).prompt.match(/_/g)).toHaveLength(2);
      expect(task('countdown').generate(seed, 1).prompt).toMatch(/numbers \d \d with/);
    }
  });
});

describe('partial credit', () => {
  it('is given for near misses and is never 1', () => {
    const score = (name: string, response: string, meta: unknown, answer = '') =>
      task(name).score(response, { answer, meta });
    const countdown = { numbers: [3, 5, 2], target: 16, tree: 0 };
    expect(score('countdown', '(3+5)*2', countdown)).toBe(1);
    expect(score('countdown', '2*(5+3) = 16', countdown)).toBe(1);
    expect(score('countdown', '3*5+2', countdown)).toBe(0.1);
    expect(score('countdown', '8*2', countdown)).toBe(0);
    expect(score('countdown', '16', countdown)).toBe(0);
    expect(score('prime_factorization', '3*2*2', { number: 12 })).toBe(1);
    expect(score('prime_factorization', '12 = 2 x 2 x 3', { number: 12 })).toBe(1);
    expect(score('prime_factorization', '4*3', { number: 12 })).toBe(0.25);
    expect(score('prime_factorization', '12', { number: 12 })).toBe(0);
    expect(score('prime_factorization', '1*2*2*3', { number: 12 })).toBe(0);
    expect(score('fraction_simplification', '3/6', { top: 6, bottom: 12 }, '1/2')).toBe(0.25);
    expect(score('fraction_simplification', '6/12', { top: 6, bottom: 12 }, '1/2')).toBe(0);
    expect(score('palindrome', 'abcba', { letters: 'aabbc' })).toBe(1);
    expect(score('palindrome', 'bacab', { letters: 'aabbc' })).toBe(1);
    expect(score('palindrome', 'aabbc', { letters: 'aabbc' })).toBe(0.1);
    expect(score('palindrome', 'ccccc', { letters: 'aabbc' })).toBe(0.1);
    const grid = [0, 3, 2, 1, 1, 0, 4, 3, 2, 1, 3, 4, 3, 4, 1, 2];
    expect(score('mini_sudoku', '4321\n1243\n2134\n3412', { grid })).toBe(1);
    expect(score('mini_sudoku', '<answer>4 3 2 1 1 1 4 3 2 1 3 4 3 4 1 2</answer>', { grid })).toBe(0.25);
    expect(score('mini_sudoku', '1234 3412 2143 4321', { grid })).toBe(0);
    expect(score('weekday_arithmetic', 'Wednesday', {}, 'Wed')).toBe(1);
    expect(score('propositional_logic', 'It is true.', {}, 'T')).toBe(1);
    expect(score('number_sorting', '100,200,300', {}, '100 200 300')).toBe(1);
  });
});
