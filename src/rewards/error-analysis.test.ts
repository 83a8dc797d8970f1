import { describe, expect, it } from 'vitest';
import type { Decision } from './decisions.ts';
import { calibration, correlation, errorAnalysis, wilson } from './error-analysis.ts';

const decision = (margin: number, length: number, source?: string): Decision => ({
  margin,
  length,
  ...(source === undefined ? {} : { source }),
  prompt: `margin ${margin}`,
  responses: [
    { label: 'chosen', text: 'c', score: margin },
    { label: 'rejected', text: 'r', score: 0 },
  ],
});

describe('the analysis of five pairs', () => {
  // σ(0.05) = 0.512, σ(3) = 0.953, σ(0.3) = 0.574
  const decisions = [
    decision(2, 10, 'a'),
    decision(0.05, -4, 'a'),
    decision(-3, -20, 'b'),
    decision(-0.3, 6, 'b'),
    decision(1, 8, 'a'),
  ];
  const analysis = errorAnalysis(decisions, { pairs: true });

  it('counts errors, close calls and how sure they were', () => {
    expect(analysis).toMatchObject({
      decisions: 5,
      errors: 2,
      accuracy: 0.6,
      close_calls: { count: 1, share: 0.2, accuracy: 1 },
      low_confidence_errors: { count: 1, share_of_errors: 0.5 },
      high_confidence_errors: { count: 1, share_of_errors: 0.5 },
      by_source: { a: { decisions: 3, accuracy: 1 }, b: { decisions: 2, accuracy: 0 } },
    });
    expect(analysis.examples.map(({ margin }) => margin)).toEqual([-3, -0.3]);
    expect(analysis.examples[0]?.confidence).toBeCloseTo(0.9525741268, 9);
  });

  it('tells length bias', () => {
    const bias = analysis.length_bias;
    expect(bias.accuracy_when_longer).toBeCloseTo(2 / 3, 12);
    expect(bias.accuracy_when_shorter).toBe(0.5);
    // of the two errors, one preferred the longer response (rejected longer by 20), one the shorter
    expect(bias.errors_preferring_longer).toBe(0.5);
    expect(bias.mean_length_when_right).toBeCloseTo(14 / 3, 12);
    expect(bias.mean_length_when_wrong).toBe(-7);
    // numpy.corrcoef([2, .05, -3, -.3, 1], [10, -4, -20, 6, 8])[0, 1]
    expect(bias.margin_length_correlation).toBeCloseTo(0.9234359284, 9);
  });

  it('spreads margins as numpy does', () => {
    const { all } = analysis.margins;
    expect(all.mean).toBeCloseTo(-0.05, 12);
    expect(all.std).toBeCloseTo(1.8761663039, 9);
    expect(all.median).toBe(0.05);
    expect(all.p10).toBeCloseTo(-1.92, 12);
    expect(all.p90).toBeCloseTo(1.6, 12);
  });

  it('leaves out what only pairs have', () => {
    expect(errorAnalysis(decisions, { pairs: false }).length_bias.accuracy_when_longer).toBeNull();
  });
});

it('shows an error that the data repeat once', () => {
  const { errors, examples } = errorAnalysis([decision(-1, 0), decision(-1, 0), decision(-2, 0)], { pairs: true });
  expect(errors).toBe(3);
  expect(examples.map(({ margin }) => margin)).toEqual([-2, -1]);
});

it('judges each true label by itself, so that the commoner one does not carry the rest', () => {
  const graded = (label: string, margin: number): Decision => ({
    ...decision(margin, 0),
    responses: [{ label, text: 't', score: 0.5 }],
  });
  // always "right": a plain accuracy of 3 in 4, balanced over the labels one half
  const analysis = errorAnalysis([graded('right', 1), graded('right', 1), graded('right', 1), graded('wrong', -1)], {
    pairs: false,
  });
  expect(analysis.accuracy).toBe(0.75);
  expect(analysis.by_label).toEqual({
    right: { decisions: 3, accuracy: 1 },
    wrong: { decisions: 1, accuracy: 0 },
  });
  expect(analysis.balanced_accuracy).toBe(0.5);
  expect(errorAnalysis([decision(1, 0)], { pairs: true })).toMatchObject({ by_label: {}, balanced_accuracy: null });
});

describe('calibration', () => {
  it('is the mean gap between stated and observed, by bins', () => {
    const forecasts = [
      { probability: 0.05, happened: false },
      { probability: 0.15, happened: true },
      { probability: 0.15, happened: false },
      { probability: 0.95, happened: true },
    ];
    const { ece, brier, bins } = calibration(forecasts);
    // |0 − 0.05|·¼ + |0.5 − 0.15|·½ + |1 − 0.95|·¼
    expect(ece).toBeCloseTo(0.2, 12);
    expect(brier).toBeCloseTo((0.0025 + 0.7225 + 0.0225 + 0.0025) / 4, 12);
    expect(bins.map(({ count }) => count)).toEqual([1, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
  });

  it('has finer bins where forecasts begin at one half', () => {
    const forecasts = [
      { probability: 0.52, happened: true },
      { probability: 0.58, happened: false },
      { probability: 1, happened: true },
    ];
    const { bins, ece } = calibration(forecasts, { from: 0.5 });
    expect(bins.map(({ count }) => count)).toEqual([1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    expect(ece).toBeCloseTo((0.48 + 0.58 + 0) / 3, 12);
  });
});

it('gives intervals as statsmodels does, and no correlation where nothing varies', () => {
  // statsmodels.stats.proportion.proportion_confint(8, 10, method='wilson')
  expect(wilson(8, 10)[0]).toBeCloseTo(0.4901625, 5);
  expect(wilson(8, 10)[1]).toBeCloseTo(0.9433178, 5);
  expect(correlation([1, 1, 1], [1, 2, 3])).toBe(0);
});
