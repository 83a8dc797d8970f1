/** Four effects of policy-gradient estimators, one thing varied at a time. */
import {
  meanOf,
  type PolicyAlgorithm,
  policyAlgorithm,
  type ResponseAdvantage,
} from '../../../src/algorithms/index.ts';
import { trainPolicy } from '../../../src/index.ts';
import { loadTokenizer } from '../../../src/models/index.ts';
import { ask, courseOf, lately, quiet, type Response, rightShare, settings, watch } from '../policies.ts';
import { chartOf, figure, percent, share } from '../report.ts';
import type { Lab, Outcomes, Study, Values } from '../study.ts';

const easy = 'number_sorting:1-2,spell_backward:1-2';
/** Most responses to these are wrong, so that most of the gradient comes from wrong ones. */
const hard = 'number_sorting:3,spell_backward:3';
const steps = 40;
const lookAt = [8, 16, 24, 32, 40];

const aggregations = {
  'length: each response’s mean (GRPO)': 'sequence',
  'length: a constant (Dr. GRPO)': 'constant',
} as const;
interface Baseline {
  advantage: ResponseAdvantage;
  group: number;
}
const baselines: Record<string, Baseline> = {
  'baseline: none': { advantage: 'none', group: 4 },
  'baseline: batch mean': { advantage: 'batch-mean', group: 4 },
  'baseline: leave-one-out, K = 2': { advantage: 'leave-one-out', group: 2 },
  'baseline: leave-one-out, K = 4': { advantage: 'leave-one-out', group: 4 },
  'baseline: leave-one-out, K = 8': { advantage: 'leave-one-out', group: 8 },
};
const passes = [1, 4, 8];
const passed = (algorithm: string, count: number) => `updates: ${algorithm}, ${count} a batch`;
const updates = ['grpo', 'gspo'].flatMap((algorithm) => passes.map((count) => passed(algorithm, count)));
const lambdas = [0, 0.5, 0.95, 1].map((lambda) => `λ: ${lambda}`);

export const estimators: Study = {
  name: 'estimators',
  title: 'Length bias, baselines, sequence ratios, λ',
  paper: {
    name: 'Liu et al. 2025, “Understanding R1-Zero-like training”; Ahmadian et al. 2024, “Back to basics”; Zheng et al. 2025, “Group sequence policy optimization”; Schulman et al. 2015, “High-dimensional continuous control using generalized advantage estimation”',
    url: 'https://arxiv.org/abs/2503.20783',
  },
  published:
    'Dr. GRPO: dividing by each response’s own length favours long wrong responses, and their length grows; with a constant it does not. RLOO: a baseline of the other samples lowers the variance of the gradient, more so with more samples. GSPO: with several updates a batch, ratios of whole sequences train more stably than ratios of tokens, although far more tokens are clipped. GAE: λ trades the critic’s bias against variance; with a reward at the end only and a poor critic, λ near 1 is needed.',
  ours: `models/tiny, ${steps} steps of 8 prompts of 8 responses (64 in all where K varies), no KL term. Length: GRPO with its aggregation alone changed, on problems that it mostly fails (\`${hard}\`), room for 128 tokens. Baselines: the squared norm of the gradient at fixed weights (learning rate 10⁻¹²), over ${steps} batches of 64 responses; the expectation of an unbiased gradient is the same for all, so that what is left is variance. Updates: passes over the same batch, GRPO and GSPO with their own clip ranges. λ: PPO with its own critic, two passes.`,
  reading: '',
  conditions: [...Object.keys(aggregations), ...Object.keys(baselines), ...updates, ...lambdas],
  seeds: [1, 2, 3],
  run(condition, lab) {
    const kind = condition.slice(0, condition.indexOf(':'));
    if (kind === 'length') return lengthBias(lab, aggregations[condition as keyof typeof aggregations]);
    if (kind === 'baseline') return gradientVariance(lab, baselines[condition] as Baseline);
    if (kind === 'updates') {
      const [, algorithm, count] = condition.match(/: (\w+), (\d+)/) as unknown as [string, string, string];
      return learnt(lab, { algorithm, ppoEpochs: Number(count) });
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

const policy = (lab: Lab, more: Settings) =>
  trainPolicy(
    {
      ...{ ...settings(lab, 'policy'), batchSize: 8, gradAccum: 1, groupSize: 8, lr: 2e-4, maxSteps: steps, klCoef: 0 },
      ...{
        task: easy,
        maxNewTokens: 64,
        eosPenalty: 0,
        evalSteps: -1,
        evalNumPrompts: 0,
        saveRollouts: false,
        saveModel: false,
      },
      ...more,
    },
    quiet,
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

async function gradientVariance(lab: Lab, { advantage, group }: Baseline): Promise<Values> {
  const algorithm: PolicyAlgorithm = { ...policyAlgorithm('rloo'), name: `variance-${advantage}`, advantage };
  const training = policy(lab, { algorithm, lr: 1e-12, groupSize: group, batchSize: 64 / group, maxGradNorm: 0 });
  const norms = courseOf(await watch(training, [], async () => {}), 'grad_norm');
  return { squared: meanOf(norms.map((norm) => norm * norm)) };
}

async function learnt(lab: Lab, more: Settings): Promise<Values> {
  const tokenizer = await loadTokenizer(lab.model);
  const asked = { tasks: easy, problems: 64, samples: 4, seed: 100 + lab.seed };
  const accuracy: number[] = [];
  const course = await watch(policy(lab, more), lookAt, async (model) => {
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
  const drop = (algorithm: string) => accuracy(passed(algorithm, 1)) - accuracy(passed(algorithm, 8));
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
          x: lookAt,
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
        claim: 'the other samples as baseline lower the variance, more of them lower it more',
        holds:
          variance('baseline: leave-one-out, K = 8') < variance('baseline: leave-one-out, K = 4') &&
          variance('baseline: leave-one-out, K = 4') < variance('baseline: none'),
        numbers: Object.keys(baselines)
          .map((condition) => `${short(condition)} ${variance(condition).toFixed(2)}`)
          .join(', '),
      },
      {
        claim: 'and lower than the mean of the batch does',
        holds: variance('baseline: leave-one-out, K = 8') < variance('baseline: batch mean'),
        numbers: `${variance('baseline: leave-one-out, K = 8').toFixed(2)} and ${variance('baseline: batch mean').toFixed(2)}`,
      },
      {
        claim: 'GSPO clips far more tokens',
        holds: clipped('gspo', 4) > 2 * clipped('grpo', 4),
        numbers: `four updates: ${percent(clipped('gspo', 4))} and ${percent(clipped('grpo', 4))}`,
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
