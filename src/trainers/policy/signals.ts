/**
 * Explains metrics of a policy run that are often misread, from the metrics so far.
 *
 *     for (const { message } of signals(run.metrics())) console.log(message);
 */
import { columnsOf, type MetricColumn, type MetricColumns, type MetricRow } from '../../runs/index.ts';
import {
  best,
  earliest,
  lastWindow,
  rangeOfMeans,
  recent,
  type WindowMean,
  windowSteps,
  windows,
} from '../../runs/metrics/windows.ts';
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
    | 'unfinished'
    | 'truncated'
    | 'over-optimised';
  /** `note`: normal, although it may not look so. `warning`: something to act on. */
  level: 'note' | 'warning';
  step: number;
  /** The last step before the change. Its rollouts show the earlier behaviour. */
  before?: number;
  message: string;
}

/** Signals in the metrics of a policy run so far. */
export function signals(history: readonly MetricRow[] | MetricColumns): Signal[] {
  const columns = 'column' in history ? history : columnsOf(history);
  return (isTaught(columns) ? rulesOfTaught : rules).flatMap((rule) => rule(columns) ?? []);
}

/** Signals of kinds not reported before. `told` records the kinds reported. */
export function newSignals(history: readonly MetricRow[], told: Set<Signal['kind']>): Signal[] {
  const fresh = signals(history).filter(({ kind }) => !told.has(kind));
  for (const { kind } of fresh) told.add(kind);
  return fresh;
}

const rules: ((history: MetricColumns) => Signal | undefined)[] = [
  firstLoss,
  fallingReward,
  equalGroups,
  klDrift,
  entropyCollapse,
  lengthGrowth,
  cutOff,
  unfinished,
  truncated,
  overOptimised,
];

/** With a teacher the loss is the KL to it, the teacher sets the entropy, and rewards are only measured. */
const rulesOfTaught = [lengthGrowth, cutOff, truncated];

const isTaught = (history: MetricColumns) => history.names.includes('train/student_logprob');

function firstLoss(history: MetricColumns): Signal | undefined {
  const { steps, values } = history.column('train/policy_loss');
  const [loss = values[0]] = history.column('train/first_policy_loss').values;
  if (loss === undefined || steps[0] !== 1 || Math.abs(loss) > 0.05) return undefined;
  // A loss of 0 with no gradient means that nothing was learnt.
  const [norm = 1] = history.column('train/grad_norm').values;
  if (norm < 1e-6) return undefined;
  // Equal advantages with a non-zero gradient do not have mean 0, as in RAFT, which trains on the best responses alone.
  if (history.column('train/advantage_std').values[0] === 0) return undefined;
  return note(
    'first-loss',
    1,
    `The loss of ${loss.toExponential(1)} at the first step is as it should be: advantages have mean 0 and the ` +
      'ratio is 1, so the value is about 0 while its gradient is not. The loss of a policy does not tell whether it ' +
      'learns; the reward and the held-out accuracy do.',
  );
}

function fallingReward(history: MetricColumns): Signal | undefined {
  const now = recent(history.column('train/score'));
  const top = best(history.column('train/score'), { apart: windowSteps });
  if (now === undefined || top === undefined || now.step < 2 * windowSteps) return undefined;
  // Compared with the best window so far, which may be the first. A run that rose and then collapsed can still end
  // above its start.
  if (!isBelow(now.mean, top.mean, rangeOfMeans(history.column('train/score')))) return undefined;
  return warn(
    'falling-reward',
    now.step,
    `The reward has fallen from ${top.mean.toPrecision(2)} around step ${top.step} to ${now.mean.toPrecision(2)}. Each update should raise it a ` +
      'little, so the updates are too large: go back to a checkpoint from before the fall, and try a third of the --lr or ' +
      'more responses per step. Small models are no exception. Where --curriculum has made the prompts harder, a fall is normal.',
    top.step,
  );
}

function equalGroups(history: MetricColumns): Signal | undefined {
  const share = recent(history.column('train/zero_spread'));
  if (share === undefined || share.mean < 0.5) return undefined;
  const right = recent(history.column('train/zero_spread_right'))?.mean;
  const wrong = recent(history.column('train/zero_spread_wrong'))?.mean;
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

/** Advises on difficulty only where most uniform groups are all right or all wrong. */
function equalGroupsAdvice(history: MetricColumns, equal: number, right: number, wrong: number): string {
  if (Math.max(right, wrong) < 0.5 * equal)
    return 'Make the reward finer, the prompts more varied or the groups larger';
  if (right >= wrong) return 'The prompts are too easy by now: raise the difficulty (--curriculum)';
  const now = recent(history.column('train/accuracy'))?.mean;
  const before = best(history.column('train/accuracy'));
  const hasFallen = now !== undefined && before !== undefined && isBelow(now, before.mean);
  // The run solved such prompts earlier, so they are not too hard.
  if (hasFallen || fallingReward(history) !== undefined)
    return 'The policy did better on such prompts earlier in this run: go back to the best checkpoint and try a third of the --lr';
  return 'The prompts are too hard: lower the difficulty or start from a better model';
}

function klDrift(history: MetricColumns): Signal | undefined {
  const now = recent(history.column('train/kl'));
  const before = recent(history.column('train/kl'), windowSteps);
  if (now === undefined || before === undefined || now.mean < 0.1 || now.mean < 2 * before.mean) return undefined;
  return warn(
    'kl-drift',
    now.step,
    `The KL to the reference has grown to ${now.mean.toPrecision(2)} nats per token, from ${before.mean.toPrecision(2)} a few ` +
      'steps ago: the policy is leaving the text that the reference (and a reward model) knows. A higher --kl-coef or a ' +
      'lower --lr holds it back; against a verifier some drift is normal.',
    before.step,
  );
}

function entropyCollapse(history: MetricColumns): Signal | undefined {
  const start = earliest(history.column('train/entropy'));
  const now = recent(history.column('train/entropy'));
  if (start === undefined || now === undefined || now.step < 2 * windowSteps || now.mean > 0.25 * start)
    return undefined;
  const accuracy = recent(history.column('train/accuracy'))?.mean ?? 0;
  if (accuracy > 0.9) return undefined;
  return warn(
    'entropy-collapse',
    now.step,
    `The entropy has fallen from ${start.toPrecision(2)} to ${now.mean.toPrecision(2)} nats per token: the policy says nearly the ` +
      'same thing every time, so groups have no spread and there is little left to learn from. Try --entropy-coef, a ' +
      'higher --clip-high, a higher temperature or a lower --lr.',
    lastWindow(history.column('train/entropy'), (mean) => mean > 0.5 * start),
  );
}

function lengthGrowth(history: MetricColumns): Signal | undefined {
  const start = earliest(history.column('train/length_mean'));
  const now = recent(history.column('train/length_mean'));
  if (start === undefined || now === undefined || now.step < 2 * windowSteps || now.mean < 1.5 * start)
    return undefined;
  const cause = isTaught(history)
    ? 'the teacher writes as much, or likes what the policy adds.'
    : 'length itself is being rewarded: by a reward model that likes it, or by a mean over each sequence, which ' +
      'makes a long wrong answer cheap (--aggregation constant or token).';
  return warn(
    'length-growth',
    now.step,
    `Responses have grown from ${start.toFixed(0)} to ${now.mean.toFixed(0)} tokens. If accuracy grew with them it is thinking; if not, ${cause}`,
    lastWindow(history.column('train/length_mean'), (mean) => mean < 1.2 * start),
  );
}

function cutOff(history: MetricColumns): Signal | undefined {
  const ended = recent(history.column('train/ended'));
  if (ended === undefined || ended.mean > 0.5) return undefined;
  return warn(
    'cut-off',
    ended.step,
    `Only ${percent(ended.mean)} of the responses ended by themselves; the rest were cut at --max-new-tokens${isTaught(history) ? '' : ' and pay the EOS penalty'}. ` +
      'Allow more tokens, or start from a model that has learnt to stop.',
  );
}

/** Most episodes ran out of turns, so the reward paid at the end of an episode is never earned. */
function unfinished(history: MetricColumns): Signal | undefined {
  const done = recent(history.column('train/episodes_done'));
  const ended = recent(history.column('train/ended'));
  if (done === undefined || done.mean > 0.5 || (ended?.mean ?? 1) <= 0.5) return undefined;
  return warn(
    'unfinished',
    done.step,
    history.names.includes('train/conversations')
      ? `Only ${percent(done.mean)} of the episodes were ended by their agent; most others used up --max-turns. Allow more turns, or let the agent end sooner.`
      : `Only ${percent(done.mean)} of the episodes were ended by their environment; most others used up --max-turns. Allow more ` +
          'turns, or start from a model that has learnt how an episode is played (attune environments demonstrate).',
  );
}

/**
 * Ratios and gradients use the whole vocabulary. A truncated sampler is therefore a slightly different policy from the
 * one trained.
 */
function truncated(history: MetricColumns): Signal | undefined {
  const { steps, values } = history.column('train/cut_mass');
  const first = values.findIndex((value) => value > 0);
  const [step, cut] = [steps[first], values[first]];
  if (step === undefined || cut === undefined) return undefined;
  const isAgainst = history.column('train/truncated_ratio').values.length > 0;
  // Only the full-vocabulary teacher KL logs an agreement, and that loss has no ratio.
  const hasRatio = !history.names.includes('train/teacher_agreement');
  const message =
    `--top-p, --top-k or --min-p cut away ${(100 * cut).toPrecision(2)} % of the probability at a token on average. ` +
    'Responses then come from another distribution than the one that is trained: what is cut is never tried, and so never ' +
    'unlearnt. ' +
    (isAgainst
      ? 'Ratios are taken against the truncated one (--truncated-ratio), which does not change that.'
      : `Sample from the whole distribution (--top-p 1 --top-k 0 --min-p 0)${hasRatio ? ', or take ratios against the truncated one (--truncated-ratio)' : ''}.`);
  return cut < 0.01 || isAgainst ? note('truncated', step, message) : warn('truncated', step, message);
}

/**
 * Prefers held-out prompts, because the policy was not trained on them. If all rewards come from the verifier, reward
 * and accuracy differ only by chance and partial credit, and the signal is off.
 */
function overOptimised(history: MetricColumns): Signal | undefined {
  const parts = history.names.filter((name) => /^train\/reward_(?!std$|mean$)/.test(name));
  if (parts.length > 0 && parts.every((name) => name.startsWith('train/reward_verifier'))) return undefined;
  const held = ['eval/reward', 'eval/accuracy'].map((name) => history.column(name));
  const isHeld = held.every(({ values }) => values.length >= 3);
  const [rewards, accuracies] = isHeld ? held : ['train/score', 'train/accuracy'].map((name) => history.column(name));
  const [reward, accuracy] = [rewards, accuracies].map((column) => column && change(column, isHeld ? 1 : windowSteps));
  if (reward === undefined || accuracy === undefined || reward.by <= 0.02 || accuracy.fromBest >= -0.05)
    return undefined;
  return warn(
    'over-optimised',
    reward.step,
    `The reward is still rising while the verifier's accuracy has fallen to ${percent(accuracy.now)} from ` +
      `${percent(accuracy.now - accuracy.fromBest)}: the policy has found what the reward likes instead of what is right. Keep the ` +
      'checkpoint from before, raise --kl-coef, or train the reward model on what the policy writes now.',
    accuracy.bestStep,
  );
}

/** Lower by a fifth, by at least 0.05, and by more than chance explains. */
const isBelow = (now: number, before: number, chance = 0) =>
  now <= before - Math.max(0.05, 0.2 * Math.abs(before), chance);

/** The change of a metric from its first to its last window, and from its best one. */
function change(column: MetricColumn, size: number) {
  if (column.values.length < Math.max(3, 2 * size)) return undefined;
  const means = windows(column, size);
  const [first, now, top] = [means[0], means.at(-1), best(column, { size })] as [WindowMean, WindowMean, WindowMean];
  return {
    now: now.mean,
    step: now.step,
    by: now.mean - first.mean,
    fromBest: now.mean - top.mean,
    bestStep: top.step,
  };
}

const percent = (share: number) => `${Math.round(100 * share)} %`;
const note = (kind: Signal['kind'], step: number, message: string): Signal => ({
  kind,
  level: 'note',
  step,
  message: spelled(message),
});
const warn = (kind: Signal['kind'], step: number, message: string, before?: number): Signal => ({
  kind,
  level: 'warning',
  step,
  ...(before === undefined ? {} : { before }),
  message: spelled(message),
});
