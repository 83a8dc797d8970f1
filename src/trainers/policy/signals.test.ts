import { describe, expect, it } from 'vitest';
import { Random } from '../../random.ts';
import type { MetricRow } from '../../runs/index.ts';
import { newSignals, signals } from './signals.ts';

/** Metric rows 1…n. Each metric is a function of the progress from 0 to 1. */
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
    const gradient = (norm: number) => ({ 'train/policy_loss': () => 0, 'train/grad_norm': () => norm });
    expect(kinds(course(1, gradient(0.3)))).toEqual(['first-loss']);
    expect(kinds(course(1, gradient(0)))).toEqual([]);
    // RAFT: every response trained on has advantage 1.
    expect(kinds(course(1, { ...gradient(0.3), 'train/advantage_std': () => 0 }))).toEqual([]);
    const resumed = course(3, { 'train/policy_loss': () => 0 }).slice(1);
    expect(kinds(resumed)).toEqual([]);
  });

  it('tells of episodes that their environment does not end, unless they are cut', () => {
    const of = (done: number, ended: number) => ({
      ...healthy,
      'train/episodes_done': () => done,
      'train/ended': () => ended,
    });
    expect(kinds(course(20, of(0.9, 1)))).toEqual([]);
    expect(kinds(course(20, of(0.2, 1)))).toEqual(['unfinished']);
    expect(kinds(course(20, of(0.2, 0.2)))).toEqual(['cut-off']);
  });

  it('says nothing of rewards, advantages and entropy where a teacher is learnt from', () => {
    const taught = {
      'train/student_logprob': () => -0.1,
      'train/policy_loss': () => 0.01,
      'train/entropy': (t: number) => 1 - 0.9 * t,
      'train/score': (t: number) => 0.9 - 0.8 * t,
      'train/accuracy': () => 0.5,
    };
    expect(kinds(course(60, taught))).toEqual([]);
    const [grown] = signals(course(60, { ...taught, 'train/length_mean': (t: number) => 40 + 90 * t }));
    expect(grown?.message).toMatch(/If accuracy grew .* if not, the teacher writes as much/);
    const [cut] = signals(course(60, { ...taught, 'train/ended': () => 0.1 }));
    expect(cut?.message).toMatch(/cut at --max-new-tokens\. Allow/);
    const cutMass = { ...taught, 'train/cut_mass': () => 0.1 };
    expect(signals(course(1, cutMass))[0]?.message).toContain('--truncated-ratio');
    const whole = course(1, { ...cutMass, 'train/teacher_agreement': () => 0.9 });
    expect(signals(whole)[0]?.message).not.toContain('--truncated-ratio');
  });

  const equal = (right: number, wrong: number) => ({
    ...healthy,
    'train/zero_spread': () => 0.75,
    'train/zero_spread_right': () => right,
    'train/zero_spread_wrong': () => wrong,
  });
  const equalGroupsOf = (rows: MetricRow[]) =>
    signals(rows).find(({ kind }) => kind === 'equal-groups')?.message ?? 'no such signal';

  it('counts groups without spread, and tells easy from hard by what was right in them', () => {
    expect(equalGroupsOf(course(20, equal(0.7, 0.05)))).toMatch(/75 % of the groups.*70 % .* right, 5 % .*too easy/s);
    expect(equalGroupsOf(course(20, equal(0.05, 0.7)))).toMatch(/too hard/);
    for (const unknown of [equal(0.2, 0.3), { ...healthy, 'train/zero_spread': () => 0.75 }])
      expect(equalGroupsOf(course(20, unknown))).toMatch(/Make the reward finer/);
  });

  it('does not call prompts too hard that the run could answer before', () => {
    const wrong = equal(0.05, 0.7);
    const worse = { ...wrong, 'train/accuracy': (t: number) => (t < 0.5 ? 0.7 : 0.1) };
    const paidLess = { ...wrong, 'train/accuracy': () => 0.1, 'train/score': (t: number) => 0.6 - 0.4 * t };
    for (const metrics of [worse, paidLess]) {
      expect(equalGroupsOf(course(40, metrics))).toMatch(/did better on such prompts/);
      expect(equalGroupsOf(course(40, metrics))).not.toMatch(/too hard/);
    }
  });

  it('sees a reward that falls, as it does where updates are too large', () => {
    expect(kinds(course(40, { ...healthy, 'train/score': (t) => 0.6 - 0.4 * t }))).toEqual(['falling-reward']);
    expect(kinds(course(40, { ...healthy, 'train/score': (t) => 0.6 - 0.04 * t }))).toEqual([]);
  });

  it('tells the fall of a reward from its best, not from a low start', () => {
    const rows = course(60, { ...healthy, 'train/score': (t) => (t < 0.3 ? 0.25 : t < 0.6 ? 0.72 : 0.1) });
    expect(signals(rows)[0]?.message).toMatch(/^The reward has fallen from 0.72 around step \d+ to 0.10/);
  });

  describe('a reward that rose and then fell', () => {
    const falls = (rows: MetricRow[]) => signals(rows).find(({ kind }) => kind === 'falling-reward');
    const withScores = (n: number, at: (done: number) => number) => course(n, { ...healthy, 'train/score': at });

    it('is seen although it ends above its start, with the step before the fall', () => {
      const rows = withScores(60, (t) => (t < 0.6 ? 0.2 + t : 0.4));
      expect(falls(rows)).toMatchObject({ level: 'warning', step: 60, before: 36 });
    });

    it('is seen where it fell at once', () => {
      const rows = course(40, healthy).map((row) => ({ ...row, 'train/score': [0, 0.69, 0.11, 0.05][row.step] ?? 0 }));
      expect(falls(rows)?.message).toMatch(/^The reward has fallen from 0.11 around step 8 to 0/);
    });

    it('is not told of where it came back, or fell by little', () => {
      expect(falls(withScores(80, (t) => (t < 0.4 ? 0.7 : t < 0.6 ? 0.1 : 0.7)))).toBeUndefined();
      expect(falls(withScores(80, (t) => (t < 0.5 ? 0.2 + t : 0.62)))).toBeUndefined();
    });

    /** Whether the signal fires at any step when the history is checked at every step, as in training. */
    const everFalls = (seed: number, n: number, noise: number, at: (done: number) => number) => {
      const random = new Random('falling reward', seed);
      // Box and Muller (1958).
      const normal = () => Math.sqrt(-2 * Math.log(1 - random.float())) * Math.cos(2 * Math.PI * random.float());
      const rows = withScores(n, (t) => at(t) + noise * normal());
      return rows.some((_, i) => i % 4 === 0 && falls(rows.slice(0, i + 1)) !== undefined);
    };
    const seeds = Array.from({ length: 10 }, (_, i) => i);

    it('is told from noise around a level, or around a rise', () => {
      for (const noise of [0.02, 0.1, 0.25])
        for (const course of [() => 0.75, (t: number) => 0.75 + t])
          expect(seeds.filter((seed) => everFalls(seed, 100, noise, course))).toEqual([]);
    });

    it('is seen through noise', () => {
      const collapse = (t: number) => (t < 0.5 ? 0.3 + t : 0.35);
      expect(seeds.filter((seed) => !everFalls(seed, 120, 0.1, collapse))).toEqual([]);
    });
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
