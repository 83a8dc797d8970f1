/** DeepSeek-AI 2025 (R1-Zero): RL alone, from a base that can think and check itself but rarely does. */
import { meanOf } from '../../../src/algorithms/index.ts';
import { chartOf, figure, percent, share } from '../report.ts';
import type { Outcomes, Study } from '../study.ts';
import { grow, imitate, ks, lookAt } from './measure.ts';
import type { Habits } from './teacher.ts';

interface Condition {
  habits: Habits;
  maxNewTokens: number;
}

const rare: Habits = { think: 0.08, check: 0.04 };
const settingsOf: Record<string, Condition> = {
  'can, rarely does': { habits: rare, maxNewTokens: 128 },
  'never checked': { habits: { think: 0.12, check: 0 }, maxNewTokens: 128 },
  'never thought': { habits: { think: 0, check: 0 }, maxNewTokens: 128 },
  'no room': { habits: rare, maxNewTokens: 24 },
  'a short cut': { habits: { ...rare, hastySlips: 0.7 }, maxNewTokens: 128 },
};

export const zero: Study = {
  name: 'zero',
  title: 'R1-Zero, small',
  paper: {
    name: 'DeepSeek-AI 2025, “DeepSeek-R1: incentivizing reasoning capability in LLMs via reinforcement learning”',
    url: 'https://arxiv.org/abs/2501.12948',
  },
  published:
    'R1-Zero is GRPO on a base model with rewards for right answers and format. AIME 2024 pass@1 went from 15.6 % to 77.9 % (71.0 % in the first version of the report) while responses grew from hundreds to some ten thousand tokens, with reflection and checking that nobody asked for. Later work (Liu et al. 2025; Gandhi et al. 2025) found the checking already in the base, and that bases without it do not develop it.',
  ours: `The base is models/tiny after 240 steps of imitation of a teacher who blurts out a wrong answer in 88 % of cases, works the problem out in 8 % (with a slip in four of ten) and in 4 % works it out, checks it, and redoes it if it was wrong. Then 80 steps of GRPO on the verifier alone, 8 prompts of 8 responses. Four controls vary one thing each: a teacher who never checks; one who never works anything out; room for only 24 tokens; and a short cut, where blurted answers are right in three of ten cases. A self-check is a line that begins with “check”. There is no format reward.`,
  reading:
    'At 0.85M parameters reasoning does not emerge. In some seeds working out rises at first, to a third of responses, and then dies out: RL makes blurted answers right instead. A blurted answer is close to what the model knows (a base that never works anything out has a pass@32 of 78 %), nine of ten samples train it, and it costs fewer tokens. At 113M parameters, from the same habits, working out does take over (6). Self-checks vanish at both sizes. They begin at 4 % of samples, and how often a checked response is right was not recorded, so we cannot say whether checking would have helped. What was never sampled was never learnt: a base without checks, or without working out, does not discover them. Without room for working out, it is unlearnt.',
  conditions: Object.keys(settingsOf),
  seeds: [1, 2, 3],
  async run(condition, lab) {
    const { habits, maxNewTokens } = settingsOf[condition] as Condition;
    const base = await lab.shared(
      `base-${habits.think}-${habits.check}-${habits.hastySlips ?? 1}-${lab.seed}`,
      (folder) => imitate(lab, habits, folder, 1e-3),
    );
    return grow({ ...lab, model: base }, { maxNewTokens, lr: 2e-4 });
  },
  report,
};

function report(outcomes: Outcomes) {
  const conditions = Object.keys(settingsOf);
  const [first] = conditions as [string];
  const ends = (condition: string, name: string) =>
    outcomes.curves(condition, name).map((curve) => [curve[0] as number, curve.at(-1) as number] as const);
  const start = (condition: string, name: string) => ends(condition, name).map(([value]) => value);
  const end = (condition: string, name: string) => ends(condition, name).map(([, value]) => value);
  const change = (condition: string, name: string, shown: (values: readonly number[]) => string) =>
    `${shown(start(condition, name))} → ${shown(end(condition, name))}`;
  const steps = [0, ...lookAt];
  const panel = (name: string, title: string, yLabel: string, isShare: boolean) =>
    chartOf(
      { title, xLabel: 'step', yLabel, share: isShare },
      conditions.map((condition) => ({ name: condition, x: steps, runs: outcomes.curves(condition, name) })),
    );
  const mean = (condition: string, name: string, of: typeof start) => meanOf(of(condition, name));
  const gained = (k: number) =>
    meanOf(outcomes.curves(first, 'passAfter').map((curve) => curve[ks.indexOf(k)] as number)) -
    meanOf(outcomes.curves(first, 'passBefore').map((curve) => curve[ks.indexOf(k)] as number));
  const shown = (condition: string, name: string) =>
    `${percent(mean(condition, name, start))} → ${percent(mean(condition, name, end))}`;
  return {
    charts: [
      panel('accuracy', 'Right responses, held out', 'accuracy', true),
      panel('tokens', 'Length', 'tokens per response', false),
      panel('thinks', 'Responses that work it out', 'share', true),
      panel('checks', 'Responses that check themselves', 'share', true),
      chartOf({ title: `pass@k, ${first}`, xLabel: 'k, in doublings', yLabel: 'pass@k', share: true }, [
        { name: 'before', x: ks.map(Math.log2), runs: outcomes.curves(first, 'passBefore') },
        { name: 'after', x: ks.map(Math.log2), runs: outcomes.curves(first, 'passAfter') },
      ]),
    ],
    tables: [
      {
        caption: 'Before and after RL.',
        table: {
          head: ['base', 'right', 'tokens', 'works it out', 'checks itself', 'pass@32'],
          rows: conditions.map((condition) => [
            ...[condition, change(condition, 'accuracy', share), change(condition, 'tokens', figure)],
            ...[change(condition, 'thinks', share), change(condition, 'checks', share)],
            `${share(outcomes.curves(condition, 'passBefore').map((curve) => curve.at(-1) as number))} → ${share(outcomes.curves(condition, 'passAfter').map((curve) => curve.at(-1) as number))}`,
          ]),
        },
      },
    ],
    findings: [
      {
        claim: 'accuracy and length grow together',
        holds:
          mean(first, 'accuracy', end) > mean(first, 'accuracy', start) + 0.2 &&
          mean(first, 'tokens', end) > 1.5 * mean(first, 'tokens', start),
        numbers: `${shown(first, 'accuracy')} right, ${mean(first, 'tokens', start).toFixed(0)} → ${mean(first, 'tokens', end).toFixed(0)} tokens`,
      },
      { claim: 'self-checks become common', holds: mean(first, 'checks', end) > 0.5, numbers: shown(first, 'checks') },
      {
        claim: 'pass@1 gains far more than pass@32',
        holds: gained(1) > 2 * gained(32),
        numbers: `${(100 * gained(1)).toFixed(0)} and ${(100 * gained(32)).toFixed(0)} points`,
      },
      {
        claim: 'a base that never checks does not begin to',
        holds: mean('never checked', 'checks', end) < 0.01,
        numbers: shown('never checked', 'checks'),
      },
      {
        claim: 'a base that never works anything out stays short',
        holds:
          mean('never thought', 'thinks', end) < 0.01 &&
          mean('never thought', 'tokens', end) < 1.5 * mean('never thought', 'tokens', start),
        numbers: `${shown('never thought', 'thinks')} work it out, ${shown('never thought', 'accuracy')} right`,
      },
      {
        claim: 'without room for it, working out is unlearnt',
        holds: mean('no room', 'thinks', end) < mean('no room', 'thinks', start),
        numbers: shown('no room', 'thinks'),
      },
    ],
  };
}
