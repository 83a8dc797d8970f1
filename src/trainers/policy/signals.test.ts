import { describe, expect, it } from 'vitest';
import type { MetricRow } from '../../runs/index.ts';
import { newSignals, signals } from './signals.ts';

/** Rows 1…n of a run in which metrics follow these courses from 0 to 1. */
function course(n: number, metrics: Record<string, (done: number) => number>): MetricRow[] {
  return Array.from({ length: n }, (_, i) => ({
    step: i + 1,
    ...Object.fromEntries(Object.entries(metrics).map(([name, at]) => [name, at(n === 1 ? 0 : i / (n - 1))])),
  })) as MetricRow[];
}

const kinds = (rows: MetricRow[]) => signals(rows).map(({ kind }) => kind);
const healthy = {
  'train/policy_loss': () => 0.3,
  'train/zero_spread': () => 0.2,
  'train/kl': (t: number) => 0.02 * t,
  'train/entropy': (t: number) => 1 - 0.4 * t,
  'train/length_mean': (t: number) => 40 + 10 * t,
  'train/ended': () => 0.98,
  'train/score': (t: number) => t,
  'train/accuracy': (t: number) => 0.2 + 0.6 * t,
};

describe('signals', () => {
  it('says nothing of a healthy run', () => expect(signals(course(60, healthy))).toEqual([]));

  it('explains a first loss of nothing, and only at the first step', () => {
    expect(kinds(course(1, { 'train/policy_loss': () => 1e-9 }))).toEqual(['first-loss']);
    expect(kinds(course(1, { 'train/policy_loss': () => 0.4 }))).toEqual([]);
    const resumed = course(3, { 'train/policy_loss': () => 0 }).slice(1);
    expect(kinds(resumed)).toEqual([]);
  });

  it('counts groups without spread, and tells easy from hard', () => {
    const rows = (accuracy: number) =>
      course(20, { ...healthy, 'train/zero_spread': () => 0.75, 'train/accuracy': () => accuracy });
    expect(signals(rows(0.9))[0]?.message).toMatch(/75 % of the groups.*too easy/s);
    expect(signals(rows(0.05))[0]?.message).toMatch(/Only 5 % are right.*too hard/s);
  });

  it('sees a reward that falls, as it does where updates are too large', () => {
    expect(kinds(course(40, { ...healthy, 'train/score': (t) => 0.6 - 0.4 * t }))).toEqual(['falling-reward']);
    expect(kinds(course(40, { ...healthy, 'train/score': (t) => 0.6 - 0.04 * t }))).toEqual([]);
  });

  it('sees a KL that runs away, not one that is small or steady', () => {
    expect(kinds(course(40, { ...healthy, 'train/kl': (t) => 2 * t ** 4 }))).toEqual(['kl-drift']);
    expect(kinds(course(40, { ...healthy, 'train/kl': () => 0.5 }))).toEqual([]);
  });

  it('sees entropy collapse unless the task is solved', () => {
    const falling = { ...healthy, 'train/entropy': (t: number) => (1 - t) ** 3 };
    expect(kinds(course(40, falling))).toEqual(['entropy-collapse']);
    expect(kinds(course(40, { ...falling, 'train/accuracy': () => 0.99 }))).toEqual([]);
  });

  it('sees length growth and responses that never end', () => {
    expect(kinds(course(40, { ...healthy, 'train/length_mean': (t) => 40 + 80 * t }))).toEqual(['length-growth']);
    expect(kinds(course(40, { ...healthy, 'train/ended': () => 0.1 }))).toEqual(['cut-off']);
  });

  it('sees reward rising while accuracy falls, held-out before training figures', () => {
    const hacked = course(40, { ...healthy, 'train/accuracy': (t) => (t < 0.5 ? 0.5 + t : 1.5 - t) });
    expect(kinds(hacked)).toEqual(['over-optimised']);
    const paidBy = (part: string) =>
      hacked.map((row) => ({ ...row, [`train/reward_${part}`]: 0.5, 'train/reward_std': 0.1 }));
    expect(kinds(paidBy('reward_model'))).toEqual(['over-optimised']);
    expect(kinds(paidBy('verifier_answer'))).toEqual([]);
    const fine = hacked.map((row) => ({ ...row, 'eval/reward': row.step / 40, 'eval/accuracy': row.step / 40 }));
    expect(kinds(fine)).toEqual([]);
  });

  it('tells each kind once', () => {
    const told = new Set<never>();
    const rows = course(40, { ...healthy, 'train/ended': () => 0.1 });
    expect(newSignals(rows, told).length).toBe(1);
    expect(newSignals(rows, told).length).toBe(0);
  });
});
