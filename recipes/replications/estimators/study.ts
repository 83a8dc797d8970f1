/** Four effects of policy-gradient estimators, one thing varied at a time. */
import {
  meanOf,
  type PolicyAlgorithm,
  policyAlgorithm,
  type ResponseAdvantage,
} from '../../../src/algorithms/index.ts';
import { type PolicyTrainerOptions, rewardFunction, trainPolicy } from '../../../src/index.ts';
import { loadTokenizer } from '../../../src/models/index.ts';
import { ask, courseOf, lately, quiet, type Response, rightShare, settings, watch } from '../policies.ts';
import { chartOf, figure, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study, Values } from '../study.ts';

const easy = 'number_sorting:1-2,spell_backward:1-2';
/** Most responses to these are wrong, so that most of the gradient comes from wrong ones. */
const hard = 'chain_sum:2,simple_equations:1';
const steps = 40;
const lookAt = [8, 16, 24, 32, 40];
const updatesAt = [6, 12, 18, 24];

const aggregations = {
  'length: each response’s mean (GRPO)': 'sequence',
  'length: a constant (Dr. GRPO)': 'constant',
} as const;
interface Baseline {
  advantage: ResponseAdvantage;
  group: number;
  /** What is added to every reward. */
  raised?: number;
}
const baselines: Record<string, Baseline> = {
  'baseline: none': { advantage: 'none', group: 4 },
  'baseline: none, rewards raised by 1': { advantage: 'none', group: 4, raised: 1 },
  'baseline: leave-one-out, K = 2': { advantage: 'leave-one-out', group: 2 },
  'baseline: leave-one-out, K = 8': { advantage: 'leave-one-out', group: 8 },
};
const passed = (algorithm: string, count: number) => `updates: ${algorithm}, ${count} a batch`;
/** With one update a batch all ratios are 1 and GSPO takes GRPO's step. */
const updates = [passed('grpo', 1), passed('grpo', 8), passed('gspo', 8)];
const lambdas = [0, 0.95, 1].map((lambda) => `λ: ${lambda}`);

export const estimators: Study = {
  name: 'estimators',
  title: 'Length bias, baselines, sequence ratios, λ',
  paper: {
    name: 'Liu et al. 2025, “Understanding R1-Zero-like training”; Ahmadian et al. 2024, “Back to basics”; Zheng et al. 2025, “Group sequence policy optimization”; Schulman et al. 2015, “High-dimensional continuous control using generalized advantage estimation”',
    url: 'https://arxiv.org/abs/2503.20783',
  },
  published:
    'Dr. GRPO: dividing by each response’s own length favours long wrong responses, and their length grows; with a constant it does not. RLOO: a baseline of the other samples lowers the variance of the gradient, more so with more samples. GSPO: with several updates per batch, sequence ratios train more stably than token ratios, although far more tokens are clipped. GAE: λ trades the critic’s bias against variance; with a reward only at the end and a poor critic, λ near 1 is needed.',
  ours: `models/tiny, no KL term, 8 prompts of 8 responses a step. Length: ${steps} steps of GRPO in which only the aggregation differs, on problems that it mostly fails (\`${hard}\`), room for 128 tokens. Baselines: the mean squared norm of the gradient at fixed weights (learning rate 10⁻¹²) over ${steps} batches of 64 responses; the expectation of an unbiased gradient is the same for all, so differences are variance. Updates: ${updatesAt.at(-1)} steps with one or eight passes over the same batch, GRPO and GSPO with their own clip ranges; with one pass the two take the same step, so GRPO’s result stands for both. λ: ${steps} steps of PPO with its own critic and two passes.`,
  reading:
    'Three of the four effects appear. The length bias does not: under both aggregations wrong responses double in length, because working out pays, and with 10 to 20 tokens the bias has little to act on. A baseline of the other samples makes the gradient independent of the arbitrary zero of the rewards, which is its purpose. For rewards that happen to lie between 0 and 1 it does not lower the norm here. A likely reason: right responses are mostly worked out in likely tokens with small gradients, and without a baseline the wrong ones, whose gradients are large, do not count at all.',
  conditions: [...Object.keys(aggregations), ...Object.keys(baselines), ...updates, ...lambdas],
  seeds: [1, 2, 3],
  run(condition, lab) {
    const kind = condition.slice(0, condition.indexOf(':'));
    if (kind === 'length') return lengthBias(lab, aggregations[condition as keyof typeof aggregations]);
    if (kind === 'baseline') return gradientVariance(lab, baselines[condition] as Baseline);
    if (kind === 'updates') {
      const [, algorithm, count] = condition.match(/: (\w+), (\d+)/) as unknown as [string, string, string];
      return learnt(lab, { algorithm, ppoEpochs: Number(count), maxSteps: updatesAt.at(-1) }, updatesAt);
    }
    return learnt(lab, {
      algorithm: 'ppo',
      lam: Number(condition.slice(3)),
      ppoEpochs: 2,
      valueBackbone: 'own',
      whiten: true,
    });
  },
  report,
};

type Settings = Parameters<typeof trainPolicy>[0];
type Rewards = Pick<PolicyTrainerOptions, 'rewards'>;

const policy = (lab: Lab, more: Settings, rewards: Rewards = {}) =>
  trainPolicy(
    {
      ...settings(lab, 'policy'),
      batchSize: 8,
      gradAccum: 1,
      groupSize: 8,
      lr: 2e-4,
      maxSteps: steps,
      klCoef: 0,
      task: easy,
      maxNewTokens: 64,
      eosPenalty: 0,
      evalSteps: -1,
      evalNumPrompts: 0,
      saveRollouts: false,
      saveModel: false,
      ...more,
    },
    { ...quiet, ...rewards },
  );

async function lengthBias(lab: Lab, aggregation: 'sequence' | 'constant'): Promise<Values> {
  const tokenizer = await loadTokenizer(lab.model);
  const asked = { tasks: hard, problems: 64, samples: 4, seed: 100 + lab.seed, maxNewTokens: 128 };
  const lengthOf = (groups: readonly Response[][], right: boolean) =>
    meanOf(
      groups
        .flat()
        .filter(({ correct }) => correct === right)
        .map(({ tokens }) => tokens),
    );
  const [wrong, right, accuracy]: [number[], number[], number[]] = [[], [], []];
  await watch(
    policy(lab, { algorithm: 'grpo', aggregation, task: hard, maxNewTokens: 128 }),
    [1, ...lookAt],
    async (model) => {
      const groups = await ask(model, tokenizer, asked);
      wrong.push(lengthOf(groups, false));
      right.push(lengthOf(groups, true));
      accuracy.push(rightShare(groups));
    },
  );
  return { wrong, right, accuracy };
}

async function gradientVariance(lab: Lab, { advantage, group, raised = 0 }: Baseline): Promise<Values> {
  const algorithm: PolicyAlgorithm = { ...policyAlgorithm('rloo'), name: `variance-${advantage}`, advantage };
  const fixed = { algorithm, lr: 1e-12, groupSize: group, batchSize: 64 / group, maxGradNorm: 0 };
  const more =
    raised === 0 ? {} : { rewards: [rewardFunction((batch) => batch.map(() => raised), { name: 'raised' })] };
  const training = policy(lab, { ...fixed, verifierReward: true }, more);
  const norms = courseOf(await watch(training, [], async () => {}), 'grad_norm');
  return { squared: meanOf(norms.map((norm) => norm * norm)) };
}

async function learnt(lab: Lab, more: Settings, at: readonly number[] = lookAt): Promise<Values> {
  const tokenizer = await loadTokenizer(lab.model);
  const asked = { tasks: easy, problems: 64, samples: 4, seed: 100 + lab.seed };
  const accuracy: number[] = [];
  const course = await watch(policy(lab, more), at, async (model) => {
    accuracy.push(rightShare(await ask(model, tokenizer, asked)));
  });
  const late = (name: string) => lately(courseOf(course, name), 20);
  return {
    accuracy,
    clipped: late('clip_fraction'),
    ratio: late('ratio_max'),
    entropy: lately(courseOf(course, 'entropy'), 5),
  };
}

function report(outcomes: Outcomes) {
  const [bySequence, byConstant] = Object.keys(aggregations) as [string, string];
  const end = (condition: string, name: string) =>
    outcomes.curves(condition, name).map((curve) => curve.at(-1) as number);
  const start = (condition: string, name: string) =>
    outcomes.curves(condition, name).map((curve) => curve[0] as number);
  const growth = (condition: string) => meanOf(end(condition, 'wrong')) - meanOf(start(condition, 'wrong'));
  const squared = (condition: string) => outcomes.numbers(condition, 'squared');
  const variance = (condition: string) => meanOf(squared(condition));
  const accuracy = (condition: string) => meanOf(end(condition, 'accuracy'));
  const drop = (algorithm: string) => accuracy(passed('grpo', 1)) - accuracy(passed(algorithm, 8));
  const clipped = (algorithm: string, count: number) => meanOf(outcomes.numbers(passed(algorithm, count), 'clipped'));
  const short = (condition: string) => condition.slice(condition.indexOf(':') + 2);
  return {
    charts: [
      chartOf(
        { title: 'Length of wrong responses', xLabel: 'step', yLabel: 'tokens' },
        [bySequence, byConstant].map((condition) => ({
          name: short(condition),
          x: [1, ...lookAt],
          runs: outcomes.curves(condition, 'wrong'),
        })),
      ),
      chartOf(
        { title: 'Right responses, several updates a batch', xLabel: 'step', yLabel: 'accuracy', share: true },
        updates.map((condition) => ({
          name: short(condition),
          x: updatesAt,
          runs: outcomes.curves(condition, 'accuracy'),
        })),
      ),
      chartOf(
        { title: 'Right responses, PPO', xLabel: 'step', yLabel: 'accuracy', share: true },
        lambdas.map((condition) => ({
          name: condition.replace(':', ' ='),
          x: lookAt,
          runs: outcomes.curves(condition, 'accuracy'),
        })),
      ),
    ],
    tables: [
      {
        caption: 'Length bias.',
        table: {
          head: ['divided by', 'wrong responses, tokens', 'right responses, tokens', 'right'],
          rows: [bySequence, byConstant].map((condition) => [
            short(condition),
            `${figure(start(condition, 'wrong'))} → ${figure(end(condition, 'wrong'))}`,
            `${figure(start(condition, 'right'))} → ${figure(end(condition, 'right'))}`,
            `${share(start(condition, 'accuracy'))} → ${share(end(condition, 'accuracy'))}`,
          ]),
        },
      },
      {
        caption: 'Squared norm of the gradient at fixed weights.',
        table: {
          head: ['baseline', 'E‖g‖²', 'of that without one'],
          rows: Object.keys(baselines).map((condition) => [
            short(condition),
            figure(squared(condition), 2),
            percent(variance(condition) / variance('baseline: none')),
          ]),
        },
      },
      {
        caption: 'Several updates on one batch.',
        table: {
          head: ['algorithm', 'right at the end', 'tokens clipped', 'largest ratio', 'entropy'],
          rows: updates.map((condition) => [
            short(condition),
            share(end(condition, 'accuracy')),
            share(outcomes.numbers(condition, 'clipped')),
            figure(outcomes.numbers(condition, 'ratio'), 2),
            figure(outcomes.numbers(condition, 'entropy'), 2),
          ]),
        },
      },
      {
        caption: 'PPO’s λ.',
        table: {
          head: ['λ', 'right at the end'],
          rows: lambdas.map((condition) => [short(condition), share(end(condition, 'accuracy'))]),
        },
      },
    ],
    findings: [
      {
        claim: 'wrong responses grow longer when each is divided by its own length, less so by a constant',
        holds: growth(bySequence) > growth(byConstant) + 2,
        numbers: `by ${growth(bySequence).toFixed(1)} and ${growth(byConstant).toFixed(1)} tokens`,
      },
      {
        claim: 'without a baseline the variance depends on where the rewards have their zero',
        holds: variance('baseline: none, rewards raised by 1') > 2 * variance('baseline: none'),
        numbers: `${variance('baseline: none').toFixed(0)}, and ${variance('baseline: none, rewards raised by 1').toFixed(0)} with 1 added to every reward`,
      },
      {
        claim: 'more samples make a better baseline',
        holds: variance('baseline: leave-one-out, K = 8') < 0.95 * variance('baseline: leave-one-out, K = 2'),
        numbers: `${variance('baseline: leave-one-out, K = 2').toFixed(0)} with two samples, ${variance('baseline: leave-one-out, K = 8').toFixed(0)} with eight`,
      },
      {
        claim: 'the other samples as baseline lower the variance of rewards from 0 to 1',
        holds: variance('baseline: leave-one-out, K = 8') < 0.95 * variance('baseline: none'),
        numbers: `${variance('baseline: leave-one-out, K = 8').toFixed(0)} with eight samples, ${variance('baseline: none').toFixed(0)} without`,
      },
      {
        claim: 'GSPO clips far more tokens',
        holds: clipped('gspo', 8) > 2 * clipped('grpo', 8),
        numbers: `eight updates: ${percent(clipped('gspo', 8))} and ${percent(clipped('grpo', 8))}`,
      },
      {
        claim: 'with eight updates a batch GSPO loses less than GRPO',
        holds: drop('gspo') < drop('grpo') - 0.02,
        numbers: `against one update: GSPO ${(-100 * drop('gspo')).toFixed(0)}, GRPO ${(-100 * drop('grpo')).toFixed(0)} points`,
      },
      {
        claim: 'λ near 1 learns, λ = 0 does not',
        holds: accuracy('λ: 1') > accuracy('λ: 0') + 0.1,
        numbers: lambdas.map((condition) => `${short(condition)}: ${percent(accuracy(condition))}`).join(', '),
      },
    ],
  };
}
