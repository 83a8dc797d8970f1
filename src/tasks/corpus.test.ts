import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { DistinctPrompts } from './distinct.ts';
import {
  allTasks,
  chatRows,
  corpusKinds,
  corpusRows,
  gradedRows,
  labelledStepsRows,
  mixture,
  partOf,
  preferenceRows,
  task,
} from './index.ts';
import { parseMixture } from './mixture.ts';

const score = (row: { task: string; seed: number; difficulty: number }, response: string) =>
  task(row.task).score(response, task(row.task).generate(row.seed, row.difficulty));

describe('mixtures', () => {
  it('are drawn by weight, under a seed, at any index', () => {
    const mix = mixture('chain_sum:1*3, gcd:2-4, lcm:1*0');
    const examples = Array.from({ length: 4000 }, (_, i) => mix.example(9, i));
    const share = examples.filter((example) => example.task === 'chain_sum').length / 4000;
    expect(share).toBeGreaterThan(0.72);
    expect(share).toBeLessThan(0.78);
    expect(examples.some((example) => example.task === 'lcm')).toBe(false);
    const difficulties = new Set(examples.filter((example) => example.task === 'gcd').map((e) => e.difficulty));
    expect([...difficulties].sort()).toEqual([2, 3, 4]);
    expect(mix.examples(9).take(50).toArray()).toEqual(examples.slice(0, 50));
    expect(mix.example(10, 0)).not.toEqual(examples[0]);
    expect(mixture('all:2').parts).toHaveLength(allTasks.length);
    expect(mixture([{ task: 'gcd', difficulty: [1, 2] }]).example(1, 1).task).toBe('gcd');
  });

  it('have parts that share no prompt', () => {
    const mix = mixture('chain_sum:1,products:1,number_sequence:1');
    const prompts = (part: 'train' | 'test', seed: number) =>
      new Set(
        mix
          .examples(seed, { part, testShare: 0.2 })
          .take(2000)
          .map((example) => example.prompt),
      );
    const [train, test] = [prompts('train', 1), prompts('test', 2)];
    expect(train.intersection(test).size).toBe(0);
    expect(test.size / (train.size + test.size)).toBeGreaterThan(0.12);
    expect(test.size / (train.size + test.size)).toBeLessThan(0.28);
    expect(partOf('What is 1 + 1?')).toBe(partOf('What is 1 + 1?'));
    expect(() => mix.example(1, 0, { part: 'test', testShare: 0 })).toThrow(/too few prompts/);
  });

  it('say what is wrong with a recipe', () => {
    expect(() => mixture('chain_sun:1')).toThrow(/Did you mean "chain_sum"/);
    expect(() => mixture('gcd:9')).toThrow(/difficulty 9 is not within 1 to 5/);
    expect(() => mixture('gcd:3-2')).toThrow(UserError);
    expect(() => mixture('gcd:x')).toThrow(/Cannot read "gcd:x"/);
    expect(() => mixture('')).toThrow(UserError);
    expect(() => mixture('gcd*0')).toThrow(/weight above 0/);
    expect(() => mixture([{ task: 'gcd', weight: -1 }])).toThrow(UserError);
    expect(parseMixture('gcd:2*0.5')).toEqual([{ task: 'gcd', difficulty: [2, 2], weight: 0.5 }]);
  });
});

describe('rows', () => {
  it('are chats whose response is right', () => {
    const rows = [...chatRows({ tasks: 'all:1-3', seed: 3, count: 300, system: true })];
    expect(rows).toHaveLength(300);
    for (const row of rows) {
      expect(row.messages.map((message) => message.role)).toEqual(['system', 'user', 'assistant']);
      expect(score(row, row.messages[2]?.content ?? '')).toBe(1);
    }
  });

  it('are pairs of a right and a really wrong solution', () => {
    for (const style of ['think', 'steps', 'answer'] as const) {
      for (const row of preferenceRows({ tasks: 'all:1-5', seed: 4, count: 500, style })) {
        expect(score(row, row.chosen)).toBe(1);
        expect(score(row, row.rejected)).toBeLessThan(1);
        expect(task(row.task).generate(row.seed, row.difficulty).prompt).toBe(row.prompt);
      }
    }
  });

  it('are graded as the verifier grades them, half of them wrong', () => {
    const rows = [...gradedRows({ tasks: 'all:1-2', seed: 5, count: 2001, perPrompt: 4 })];
    expect(rows).toHaveLength(2001);
    for (const row of rows) expect(score(row, row.completion)).toBe(row.score);
    for (const row of rows) expect(row.score === 1).toBe(row.correct);
    const right = rows.filter((row) => row.correct).length / rows.length;
    expect(Math.abs(right - 0.5)).toBeLessThan(0.05);
    expect(new Set(rows.slice(0, 4).map((row) => row.prompt)).size).toBe(1);
    expect(gradedRows({ tasks: 'gcd', count: 50, wrongShare: 0 }).every((row) => row.correct)).toBe(true);
    expect(() => gradedRows({ tasks: 'gcd', wrongShare: 2 }).next()).toThrow(UserError);
    expect(() => gradedRows({ tasks: 'gcd', perPrompt: 0 }).next()).toThrow(UserError);
  });

  it('have labelled steps that turn wrong once and stay so', () => {
    const labels = new Set<number>();
    for (const row of labelledStepsRows({ tasks: 'all:1-3', seed: 6, count: 1000 })) {
      for (const step of row.steps) labels.add(step.label);
      const correct = row.steps.at(-1)?.label === 1;
      const firstWrong = row.steps.findIndex((step) => step.label === -1);
      expect(firstWrong === -1).toBe(correct);
      if (!correct) expect(row.steps.slice(firstWrong).every((step) => step.label === -1)).toBe(true);
      const whole = row.steps.map((step) => step.text).join('\n');
      expect(score(row, whole) === 1).toBe(correct);
    }
    expect([...labels].sort()).toEqual([-1, 0, 1]);
  });

  it('come again under the same seed and not under another', () => {
    for (const kind of corpusKinds) {
      const rows = (seed: number) => [...corpusRows(kind, { tasks: 'all:1', seed, count: 30 })];
      expect(rows(1)).toEqual(rows(1));
      expect(rows(1)).not.toEqual(rows(2));
      expect([...corpusRows(kind, { tasks: 'gcd', count: 0 })]).toEqual([]);
    }
  });
});

describe('length', () => {
  it.each(allTasks.map((each) => each.name))('does not tell chosen from rejected in %s', (name) => {
    let [longer, shorter] = [0, 0];
    const count = 1000;
    for (const row of preferenceRows({ tasks: `${name}:1-5`, seed: 8, count })) {
      if (row.chosen.length > row.rejected.length) longer++;
      if (row.chosen.length < row.rejected.length) shorter++;
    }
    // Guessing by length, and by a coin where lengths are equal; 1,000 coins stay within 5 points of a half.
    const accuracy = 0.5 + Math.abs(longer - shorter) / (2 * count);
    expect(accuracy).toBeLessThan(0.55);
  });

  it.each(['think', 'answer'] as const)('does not tell right from wrong by any threshold (%s)', (style) => {
    const rows = gradedRows({ tasks: 'all:1-3', seed: 9, count: 6000, style }).map(({ completion, correct }) => ({
      length: completion.length,
      correct,
    }));
    const sorted = [...rows].sort((a, b) => a.length - b.length);
    const total = sorted.filter((row) => row.correct).length;
    let [best, rightBelow] = [0, 0];
    for (const [i, row] of sorted.entries()) {
      rightBelow += row.correct ? 1 : 0;
      if (row.length === sorted[i + 1]?.length) continue;
      const wrongAbove = sorted.length - i - 1 - (total - rightBelow);
      const accuracy = (rightBelow + wrongAbove) / sorted.length;
      best = Math.max(best, accuracy, 1 - accuracy);
    }
    expect(best).toBeLessThan(0.53);
  });
});

describe('distinct prompts', () => {
  const tally = (options: Parameters<typeof corpusRows>[1], kind: 'sft' | 'graded' = 'sft') => {
    const prompts = new DistinctPrompts(kind, options.perPrompt);
    for (const row of corpusRows(kind, options)) prompts.add(row);
    return prompts;
  };

  it('are counted, and a corpus of repeats says so', () => {
    const few = tally({ tasks: 'gcd:1', part: 'test', count: 500 });
    expect(few.distinct).toBeLessThan(60);
    expect(few.warning()).toMatch(/only \d+ of 500 prompts are different/);
    expect(tally({ tasks: 'chain_sum:3', count: 200 }).warning()).toBeUndefined();
    expect(tally({ tasks: 'chain_sum:3', count: 200, perPrompt: 4 }, 'graded').warning()).toBeUndefined();
  });
});
