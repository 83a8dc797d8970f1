import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { documentText, markdown, verdict } from '../recipes/replications/document.ts';
import { bestOfNForm, fitted, leastSquares, rlForm } from '../recipes/replications/fits.ts';
import { bestOf, chances, distances, sizes } from '../recipes/replications/over-optimisation/measure.ts';
import { readOutcomes } from '../recipes/replications/results.ts';
import { studies } from '../recipes/replications/studies.ts';
import { type Outcome, Outcomes } from '../recipes/replications/study.ts';
import { teacherRows } from '../recipes/replications/zero/teacher.ts';

const root = join(import.meta.dirname, '..');
const atLeastThree = expect.toSatisfy((outcomes: Outcome[]) => outcomes.length >= 3);

describe('docs/replications.md', () => {
  it('is what the results in the repository say', () => {
    expect(readFileSync(join(root, 'docs/replications.md'), 'utf8')).toBe(documentText());
  });

  it.each(studies)('$name: every condition has three seeds', ({ name, conditions }) => {
    const outcomes = new Outcomes(readOutcomes(join(root, 'recipes/replications'), name));
    for (const condition of conditions) expect([condition, outcomes.of(condition)]).toEqual([condition, atLeastThree]);
    expect(existsSync(join(root, `docs/images/replication-${name}.png`))).toBe(true);
  });

  it('gives verdicts by what holds', () => {
    const finding = (holds: boolean) => ({ claim: 'c', holds, numbers: '' });
    expect(verdict([finding(true), finding(true)])).toBe('holds (2 of 2)');
    expect(verdict([finding(true), finding(false)])).toBe('in part (1 of 2)');
    expect(verdict([finding(false)])).toBe('does not hold (0 of 1)');
    expect(markdown({ head: ['a', 'b'], rows: [['x|y', '1']] })).toBe('| a | b |\n|---|--:|\n| x\\|y | 1 |');
  });
});

describe('fits', () => {
  const points = (form: typeof rlForm, alpha: number, beta: number, noise = 0) =>
    [1, 2, 3].flatMap((seed) =>
      [0.4, 0.9, 1.6, 2.4, 3.1].map((d, i) => ({
        ...{ seed, d },
        gain: fitted({ form, alpha, beta }, d) + noise * Math.sin(7 * seed + 3 * i),
      })),
    );

  it.each([bestOfNForm, rlForm])('find the coefficients that made the points: $name', (form) => {
    const exact = leastSquares(points(form, 0.5, 0.2), form);
    expect(exact.alpha).toBeCloseTo(0.5, 10);
    expect(exact.beta).toBeCloseTo(0.2, 10);
    expect(exact.r2).toBeCloseTo(1, 10);
    const noisy = leastSquares(points(form, 0.5, 0.2, 0.05), form);
    expect(noisy.alphaInterval[0]).toBeLessThan(0.5);
    expect(noisy.alphaInterval[1]).toBeGreaterThan(0.5);
    expect(noisy.alphaInterval[1] - noisy.alphaInterval[0]).toBeGreaterThan(0.001);
  });

  it('are those of the paper: d(α − βd) and d(α − β log d)', () => {
    expect(fitted({ form: bestOfNForm, alpha: 2, beta: 0.5 }, 3)).toBeCloseTo(3 * (2 - 0.5 * 3), 12);
    expect(fitted({ form: rlForm, alpha: 2, beta: 0.5 }, 3)).toBeCloseTo(3 * (2 - 0.5 * Math.log(3)), 12);
    expect(fitted({ form: rlForm, alpha: 2, beta: 0.5 }, 0)).toBe(0);
  });
});

it('the interval of a fit spans what the seeds say, however exact each of them is', () => {
  const steep = (seed: number, alpha: number) =>
    Array.from({ length: 60 }, (_, i) => ({ seed, d: 0.05 * (i + 1), gain: alpha * 0.05 * (i + 1) }));
  const { alphaInterval } = leastSquares([...steep(1, 1), ...steep(2, 3)], bestOfNForm);
  expect(alphaInterval).toEqual([expect.closeTo(1, 6), expect.closeTo(3, 6)]);
});

describe('the best of n', () => {
  it('is the mean over all subsets', () => {
    // 2 of 4: the best is drawn in 3 of 6 pairs, the second in 2, the third in 1.
    expect(chances(4, 2)).toEqual([3 / 6, expect.closeTo(2 / 6, 12), expect.closeTo(1 / 6, 12)]);
    expect(chances(4, 4)).toEqual([1]);
    for (const n of [1, 3, 7]) expect(chances(10, n).reduce((sum, chance) => sum + chance, 0)).toBeCloseTo(1, 12);
    expect(distances[0]).toBe(0);
    expect(distances[3]).toBeCloseTo(Math.sqrt(Math.log(8) - 7 / 8), 12);
  });

  it('takes gold from the response that the proxy prefers', () => {
    const response = (correct: boolean) => ({ correct }) as Parameters<typeof bestOf>[0][number][number];
    const group = Array.from({ length: sizes.at(-1) as number }, (_, i) => response(i === 5));
    const last = (scores: number[]) => bestOf([group], [scores]).gold.at(-1);
    expect(last(group.map((_, i) => (i === 5 ? 9 : -i)))).toBe(1);
    expect(last(group.map((_, i) => -i))).toBe(0);
    expect(bestOf([group], [group.map((_, i) => i)]).gold[0]).toBeCloseTo(1 / group.length, 12);
  });
});

it('the teacher keeps its habits', () => {
  const rows = teacherRows({ tasks: 'number_sorting:2', seed: 1, count: 2000, habits: { think: 0.2, check: 0.1 } });
  const share = (pattern: RegExp) =>
    rows.filter(({ messages }) => pattern.test(messages[1]?.content ?? '')).length / 2000;
  expect(share(/<think>/)).toBeCloseTo(0.3, 1);
  expect(share(/^check: (right|wrong)$/m)).toBeCloseTo(0.1, 1);
  const corrected = rows.find(({ messages }) => /^check: wrong$/m.test(messages[1]?.content ?? ''))?.messages[1]
    ?.content;
  expect(corrected?.split('check: wrong')[1]).toMatch(/left[\s\S]*<answer>/);
});

describe('outcomes', () => {
  it('leave a training that failed out of the numbers, and keep what became of it', () => {
    const done = { condition: 'a', seconds: 1, values: { right: 0.5 } };
    const outcomes = new Outcomes([
      { ...done, seed: 2 },
      { ...done, seed: 1, values: {}, failed: 'The training has diverged.' },
    ]);
    expect(outcomes.numbers('a', 'right')).toEqual([0.5]);
    expect(outcomes.failed.map(({ seed, failed }) => [seed, failed])).toEqual([[1, 'The training has diverged.']]);
  });
});

describe('npm run replicate', () => {
  const replicate = (...args: string[]) =>
    spawnSync(process.execPath, [join(root, 'recipes/replications/run.ts'), ...args], { encoding: 'utf8' });

  it('refuses an option that there is not, and tells those that there are', () => {
    const { status, stderr } = replicate('--sedes', '1');
    expect(stderr).toMatch(/Unknown option '--sedes'.*--seeds 4,5,6/s);
    expect([status, /^ +at /m.test(stderr)]).toEqual([2, false]);
  });
});
