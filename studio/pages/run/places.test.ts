import { expect, it } from 'vitest';
import { placesOf } from './places.ts';

const signal = (kind: string, before?: number) => ({
  ...{ kind, level: 'warning' as const, step: 80, message: '', metrics: [] },
  ...(before === undefined ? {} : { before }),
});
const y = [0.2, 0.4, 0.6, 0.7, 0.7, 0.1, 0.1, 0.1];
const reward = { x: y.map((_, i) => 10 * (i + 1)), y, step: y.map((_, i) => 10 * (i + 1)) };
const written = (places: { step: number; what: string }[]) => places.map(({ step, what }) => `${step} ${what}`.trim());

it('leads from a fall to its best, to the step before it fell, to where it fell, and to now', () =>
  expect(written(placesOf(signal('falling-reward', 40), reward))).toEqual([
    '40 (at its best)',
    '50 (before it fell most)',
    '60 (where it fell most)',
    '80 (now)',
  ]));

it('leads from other signals to the step before them', () => {
  expect(written(placesOf(signal('kl-drift', 72), reward))).toEqual(['72 (before it)', '80 (now)']);
  expect(written(placesOf(signal('cut-off'), reward))).toEqual(['80']);
});

it('leaves out a best that ends after the fall', () =>
  expect(written(placesOf(signal('falling-reward', 70), reward))[0]).toBe('50 (before it fell most)'));

it('names a step once', () =>
  expect(written(placesOf(signal('falling-reward', 50), reward))).toEqual([
    '50 (before it fell most)',
    '60 (where it fell most)',
    '80 (now)',
  ]));
