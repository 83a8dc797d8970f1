/**
 * Explains metrics of a policy run that are often misread, from the metrics so far.
 *
 *     for (const { message } of signals(run.metrics())) console.log(message);
 */
import type { MetricRow } from '../../runs/index.ts';
import { spelled } from '../../spelling.ts';

/** An explanation of a metric that is often misread. */
export interface Signal {
  kind:
    | 'first-loss'
    | 'falling-reward'
    | 'equal-groups'
    | 'kl-drift'
    | 'entropy-collapse'
    | 'length-growth'
    | 'cut-off'
    | 'truncated'
    | 'over-optimised';
  /** `note`: normal, although it may not look so. `warning`: something to act on. */
  level: 'note' | 'warning';
  step: number;
  message: string;
}

type History = readonly MetricRow[];

/** Means are taken over this many steps, so that a single step does not trigger a signal. */
const window = 8;

/** Signals in the metrics of a policy run so far. */
export function signals(history: History): Signal[] {
  return rules.flatMap((rule) => rule(history) ?? []);
}

/** Signals of a kind not reported before; `told` remembers them. */
export function newSignals(history: History, told: Set<Signal['kind']>): Signal[] {
  const fresh = signals(history).filter(({ kind }) => !told.has(kind));
  for (const { kind } of fresh) told.add(kind);
  return fresh;
}

const rules: ((history: History) => Signal | undefined)[] = [
  firstLoss,
  fallingReward,
  equalGroups,
  klDrift,
  entropyCollapse,
  lengthGrowth,
  cutOff,
  truncated,
  overOptimised,
];

function firstLoss(history: History): Signal | undefined {
  const first = history.find((row) => row['train/policy_loss'] !== undefined);
  const loss = first?.['train/first_policy_loss'] ?? first?.['train/policy_loss'];
  if (first === undefined || loss === undefined || first.step !== 1 || Math.abs(loss) > 0.05) return undefined;
  return note(
    'first-loss',
    first.step,
    `The loss of ${loss.toExponential(1)} at the first step is as it should be: advantages have mean 0 and the ` +
      'ratio is 1, so the value is about 0 while its gradient is not. The loss of a policy does not tell whether it ' +
      'learns; the reward and the held-out accuracy do.',
  );
}

function fallingReward(history: History): Signal | undefined {
  const start = earliest(history, 'train/score');
  const now = recent(history, 'train/score');
  if (start === undefined || now === undefined || now.step < 2 * window) return undefined;
  if (!isBelow(now.mean, start)) return undefined;
  // From the best of the run: against a low start a collapse would look small.
  const from = Math.max(start, best(history, 'train/score') ?? start);
  return warn(
    'falling-reward',
    now.step,
    `The reward has fallen from ${from.toPrecision(2)} to ${now.mean.toPrecision(2)}. Each update should raise it a little, so the updates are ` +
      'too large: try a third of the --lr, or more responses per step. Small models are no exception.',
  );
}

function equalGroups(history: History): Signal | undefined {
  const share = recent(history, 'train/zero_spread');
  if (share === undefined || share.mean < 0.5) return undefined;
  const right = recent(history, 'train/zero_spread_right')?.mean;
  const wrong = recent(history, 'train/zero_spread_wrong')?.mean;
  const split =
    right === undefined || wrong === undefined
      ? ''
      : ` (${percent(right)} with every response right, ${percent(wrong)} with every response wrong)`;
  return warn(
    'equal-groups',
    share.step,
    `${percent(share.mean)} of the groups had equal rewards lately${split}. Such a group gives no gradient at all: the step is paid ` +
      `for and ${percent(share.mean)} of it is thrown away. ${equalGroupsAdvice(history, share.mean, right ?? 0, wrong ?? 0)}.`,
  );
}

/** Only groups that are all right or all wrong tell easy prompts from hard ones. */
function equalGroupsAdvice(history: History, equal: number, right: number, wrong: number): string {
  if (Math.max(right, wrong) < 0.5 * equal)
    return 'Make the reward finer, the prompts more varied or the groups larger';
  if (right >= wrong) return 'The prompts are too easy by now: raise the difficulty (--curriculum)';
  const now = recent(history, 'train/accuracy')?.mean;
  const before = best(history, 'train/accuracy');
  const hasFallen = now !== undefined && before !== undefined && isBelow(now, before);
  // Prompts that the same run could answer are not too hard.
  if (hasFallen || fallingReward(history) !== undefined)
    return 'The policy did better on such prompts earlier in this run: go back to the best checkpoint and try a third of the --lr';
  return 'The prompts are too hard: lower the difficulty or start from a better model';
}

function klDrift(history: History): Signal | undefined {
  const now = recent(history, 'train/kl');
  const before = recent(history, 'train/kl', window);
  if (now === undefined || before === undefined || now.mean < 0.1 || now.mean < 2 * before.mean) return undefined;
  return warn(
    'kl-drift',
    now.step,
    `The KL to the reference has grown to ${now.mean.toPrecision(2)} nats per token, from ${before.mean.toPrecision(2)} a few ` +
      'steps ago: the policy is leaving the text that the reference (and a reward model) knows. A higher --kl-coef or a ' +
      'lower --lr holds it back; against a verifier some drift is normal.',
  );
}

function entropyCollapse(history: History): Signal | undefined {
  const start = earliest(history, 'train/entropy');
  const now = recent(history, 'train/entropy');
  if (start === undefined || now === undefined || now.step < 2 * window || now.mean > 0.25 * start) return undefined;
  const accuracy = recent(history, 'train/accuracy')?.mean ?? 0;
  if (accuracy > 0.9) return undefined;
  return warn(
    'entropy-collapse',
    now.step,
    `The entropy has fallen from ${start.toPrecision(2)} to ${now.mean.toPrecision(2)} nats per token: the policy says nearly the ` +
      'same thing every time, so groups have no spread and there is little left to learn from. Try --entropy-coef, a ' +
      'higher --clip-high, a higher temperature or a lower --lr.',
  );
}

function lengthGrowth(history: History): Signal | undefined {
  const start = earliest(history, 'train/length_mean');
  const now = recent(history, 'train/length_mean');
  if (start === undefined || now === undefined || now.step < 2 * window || now.mean < 1.5 * start) return undefined;
  return warn(
    'length-growth',
    now.step,
    `Responses have grown from ${start.toFixed(0)} to ${now.mean.toFixed(0)} tokens. If accuracy grew with them it is thinking; if ` +
      'not, length itself is being rewarded: by a reward model that likes it, or by a mean over each sequence, which ' +
      'makes a long wrong answer cheap (--aggregation constant or token).',
  );
}

function cutOff(history: History): Signal | undefined {
  const ended = recent(history, 'train/ended');
  if (ended === undefined || ended.mean > 0.5) return undefined;
  return warn(
    'cut-off',
    ended.step,
    `Only ${percent(ended.mean)} of the responses ended by themselves; the rest were cut at --max-new-tokens and pay the EOS ` +
      'penalty. Allow more tokens, or start from a model that has learnt to stop.',
  );
}

/** Ratios and gradients are taken over the whole vocabulary, so a truncated sampler is not quite the policy that is trained. */
function truncated(history: History): Signal | undefined {
  const row = history.find((candidate) => (candidate['train/cut_mass'] ?? 0) > 0);
  const cut = row?.['train/cut_mass'];
  if (row === undefined || cut === undefined) return undefined;
  const message =
    `--top-p, --top-k or --min-p cut away ${(100 * cut).toPrecision(2)} % of the probability at a token on average. ` +
    'Responses then come from another distribution than the one that is trained: what is cut is never tried, and so never ' +
    'unlearnt. Sample from the whole distribution (--top-p 1 --top-k 0 --min-p 0), or take ratios against the truncated one ' +
    '(--truncated-ratio).';
  return cut < 0.01 ? note('truncated', row.step, message) : warn('truncated', row.step, message);
}

/**
 * Uses held-out prompts if they are evaluated, because the policy was not trained on them. A reward that comes from the
 * verifier itself differs from accuracy only by chance and by partial credit.
 */
function overOptimised(history: History): Signal | undefined {
  const parts = Object.keys(history.at(-1) ?? {}).filter((name) => /^train\/reward_(?!std$|mean$)/.test(name));
  if (parts.length > 0 && parts.every((name) => name.startsWith('train/reward_verifier'))) return undefined;
  const held = history.filter((row) => row['eval/reward'] !== undefined && row['eval/accuracy'] !== undefined);
  const [prefix, rows, size] = held.length >= 3 ? (['eval', held, 1] as const) : (['train', history, window] as const);
  const reward = change(rows, `${prefix}/${prefix === 'eval' ? 'reward' : 'score'}`, size);
  const accuracy = change(rows, `${prefix}/accuracy`, size);
  if (reward === undefined || accuracy === undefined || reward.by <= 0.02 || accuracy.fromBest >= -0.05)
    return undefined;
  return warn(
    'over-optimised',
    reward.step,
    `The reward is still rising while the verifier's accuracy has fallen to ${percent(accuracy.now)} from ` +
      `${percent(accuracy.now - accuracy.fromBest)}: the policy has found what the reward likes instead of what is right. Keep the ` +
      'checkpoint from before, raise --kl-coef, or train the reward model on what the policy writes now.',
  );
}

/** The mean of the newest window, or of one that ends `back` steps earlier. */
function recent(history: History, name: string, back = 0): { mean: number; step: number } | undefined {
  const rows = withMetric(history, name);
  const end = rows.length - back;
  if (end < window) return undefined;
  const taken = rows.slice(end - window, end);
  return { mean: mean(taken.map(({ value }) => value)), step: taken.at(-1)?.step ?? 0 };
}

function earliest(history: History, name: string): number | undefined {
  const rows = withMetric(history, name).slice(0, window);
  return rows.length < window ? undefined : mean(rows.map(({ value }) => value));
}

/** The highest mean of any window. */
function best(history: History, name: string): number | undefined {
  const values = withMetric(history, name).map(({ value }) => value);
  if (values.length < window) return undefined;
  return Math.max(...Array.from({ length: values.length - window + 1 }, (_, i) => mean(values.slice(i, i + window))));
}

/** Lower by more than chance would have it. */
const isBelow = (now: number, before: number) => now <= before - Math.max(0.05, 0.2 * Math.abs(before));

/** How a metric moved between the first and the last `size` values, and against its best such mean. */
function change(history: History, name: string, size: number) {
  const rows = withMetric(history, name);
  if (rows.length < Math.max(3, 2 * size)) return undefined;
  const means = Array.from({ length: rows.length - size + 1 }, (_, i) =>
    mean(rows.slice(i, i + size).map(({ value }) => value)),
  );
  const now = means.at(-1) as number;
  const best = Math.max(...means);
  const atBest = means.indexOf(best);
  return { now, by: now - (means[0] as number), fromBest: now - best, atBest, step: rows.at(-1)?.step ?? 0 };
}

const withMetric = (history: History, name: string) =>
  history.flatMap((row) => {
    const value = row[name];
    return value === undefined || !Number.isFinite(value) ? [] : [{ step: row.step, value }];
  });

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const percent = (share: number) => `${Math.round(100 * share)} %`;
const note = (kind: Signal['kind'], step: number, message: string): Signal => ({
  kind,
  level: 'note',
  step,
  message: spelled(message),
});
const warn = (kind: Signal['kind'], step: number, message: string): Signal => ({
  kind,
  level: 'warning',
  step,
  message: spelled(message),
});
