import { describe, expect, it } from 'vitest';
import type { Outcome } from './experiments/experiment.ts';
import { latexText } from './latex-text.ts';
import { compareWith, referenceOf } from './reference.ts';
import { sourceLines } from './source-lines.ts';
import { boundsOf, textChart } from './text-chart.ts';

const outcome = (y: number[], holds = true): Outcome => ({
  figures: [{ title: 't', xLabel: 'x', yLabel: 'y', curves: [{ name: 'a', x: [1, 2, 3, 4, 5], y }] }],
  findings: [{ claim: 'it rises', holds, numbers: '' }],
});
const runs = [
  { seed: 1, outcome: outcome([0, 1, 2, 3, 4]) },
  { seed: 2, outcome: outcome([0.2, 1.2, 2.2, 3.2, 4.2]) },
  { seed: 3, outcome: outcome([-0.2, 0.8, 1.8, 2.8, 3.8]) },
];
const reference = referenceOf(runs);

describe('the stored curve', () => {
  it('is mean and spread over seeds', () => {
    expect(reference.figures[0]?.curves[0]).toEqual({
      ...{ name: 'a', x: [1, 2, 3, 4, 5], mean: [0, 1, 2, 3, 4], spread: [0.2, 0.2, 0.2, 0.2, 0.2] },
    });
    expect(reference.findings).toEqual([{ claim: 'it rises', held: 3, numbers: ['', '', ''] }]);
  });

  it('agrees with a run inside the spread, and with one stray point in five', () => {
    expect(compareWith(reference, outcome([0.5, 1.5, 1.6, 3.4, 3.5])).agrees).toBe(true);
    expect(compareWith(reference, outcome([0, 1, 2, 3, 9])).agrees).toBe(true);
  });

  it('differs from a run outside, from a missing curve and from a broken finding', () => {
    const flat = compareWith(reference, outcome([2, 2, 2, 2, 2]));
    expect(flat.agrees).toBe(false);
    expect(flat.sentence).toContain('a left the spread');
    expect(compareWith(reference, { figures: [], findings: [] }).agrees).toBe(false);
    const broken = compareWith(reference, outcome([0, 1, 2, 3, 4], false));
    expect(broken.agrees).toBe(false);
    expect(broken.sentence).toContain('it rises');
  });
});

describe('formulas as text', () => {
  it.each([
    ['\\frac{1}{2} \\ell^2', '1/2 ℓ^2'],
    ['\\pi_\\theta(y_t \\mid x)', 'π_θ(y_t | x)'],
    ['\\frac{R_i - \\operatorname{mean}(R)}{\\operatorname{std}(R)}', '(R_i - mean(R))/std(R)'],
    ['\\sum_{t=1}^{T} \\hat A_t', 'Σ_{t=1}^T Â_t'],
    ['\\frac{\\binom{n - c}{k}}{\\binom{n}{k}}', '(C(n - c, k))/(C(n, k))'],
    ['e^{-\\ell} - 1', 'e^{-ℓ} - 1'],
    ['k_1 = \\ell \\qquad k_2 = \\tfrac{1}{2} \\ell^2', 'k_1 = ℓ    k_2 = 1/2 ℓ^2'],
    ['\\sigma\\left( r \\right)', 'σ(r)'],
  ])('%s', (latex, text) => expect(latexText(latex).normalize('NFC')).toBe(text.normalize('NFC')));
});

describe('the lines of a declaration', () => {
  it('come with their comment and end with the statement', () => {
    const { text, firstLine } = sourceLines('.', 'src/algorithms/kl.ts', 'klTerms');
    expect(text).toMatch(/^\/\*\* The chosen KL estimate/);
    expect(text.trimEnd().endsWith('}')).toBe(true);
    expect(text).toContain("case 'k3'");
    expect(firstLine).toBeGreaterThan(10);
  });
  it('of a name that is not there are an error', () =>
    expect(() => sourceLines('.', 'src/algorithms/kl.ts', 'nothing')).toThrow(/declares no "nothing"/));
});

describe('a chart in characters', () => {
  it('puts the first point low on the left and the last high on the right', () => {
    const curves = [{ name: 'a', x: [0, 1, 2], y: [0, 1, 2] }];
    const lines = textChart(curves, { title: 'T', width: 5, height: 3, bounds: boundsOf(curves) });
    expect(lines.map((line) => line.trimEnd())).toEqual(['T', '2 ┤    ●', '  ┤  ●', '0 ┤●', '   0   2']);
  });
});
