/** Chapter 4. What a baseline does: every reward raised by the same amount, with and without one; and PPO. */
import { meanOf, type PolicyAlgorithm, policyAlgorithm } from '../../algorithms/index.ts';
import { task } from '../../tasks/index.ts';
import { trainPolicy } from '../../trainers/policy/policy.ts';
import type { Experiment, Lab } from './experiment.ts';
import { lately, percent, type Recorded, recorded, settings, surroundings, trainCurve } from './workbench.ts';

const steps = 30;
/** What is added to every reward. It changes no preference between responses. */
const offset = 3;

/** Williams' estimator without a baseline: each log-probability times the whole reward. */
const plainReinforce: PolicyAlgorithm = {
  ...policyAlgorithm('reinforce'),
  name: 'reinforce-without-baseline',
  advantage: 'none',
};

export const policyGradient: Experiment = {
  seconds: 130,
  async run(lab) {
    const without = await train(lab, 'without', { algorithm: plainReinforce });
    const withMean = await train(lab, 'baseline', { algorithm: 'reinforce' });
    const others = await train(lab, 'rloo', { algorithm: 'rloo' });
    const ppo = await train(lab, 'ppo', { algorithm: 'ppo', lam: 1, ppoEpochs: 2, valueBackbone: 'own', whiten: true });
    const named: [string, Recorded][] = [
      ['REINFORCE without a baseline', without],
      ['minus the batch’s mean', withMean],
      ['minus the others’ mean (RLOO)', others],
      ['PPO, a learnt baseline', ppo],
    ];
    const curves = (metric: string, neighbours: number) =>
      named.map(([name, run]) => trainCurve(name, run, metric, neighbours));
    const norm = (run: Recorded) => meanOf(run.steps.map(({ train: values }) => values.grad_norm as number));
    return {
      figures: [
        {
          title: `Right responses; every reward is raised by ${offset}`,
          xLabel: 'step',
          yLabel: 'accuracy',
          share: true,
          curves: curves('accuracy', 5),
        },
        {
          title: 'Length of the gradient',
          xLabel: 'step',
          yLabel: 'norm',
          yScale: 'log',
          curves: curves('grad_norm', 5).slice(0, 3),
        },
      ],
      findings: [
        {
          claim: 'without a baseline a constant in the reward becomes noise',
          holds: norm(without) > 2 * norm(withMean) && lately(without, 'accuracy') < lately(withMean, 'accuracy') - 0.1,
          numbers: `mean norm ${norm(without).toFixed(1)} and ${norm(withMean).toFixed(1)}; right at the end ${percent(lately(without, 'accuracy'))} and ${percent(lately(withMean, 'accuracy'))}`,
        },
        {
          claim: 'each baseline learns; PPO has to learn its own first',
          holds: [withMean, others, ppo].every((run) => lately(run, 'accuracy') > 0.6),
          numbers: `batch mean ${percent(lately(withMean, 'accuracy'))}, RLOO ${percent(lately(others, 'accuracy'))}, PPO ${percent(lately(ppo, 'accuracy'))}`,
        },
      ],
    };
  },
};

function train(lab: Lab, name: string, more: object): Promise<Recorded> {
  return recorded(
    lab,
    trainPolicy(
      {
        ...settings(lab, name),
        task: 'number_sorting:1,spell_backward:1',
        verifierReward: false,
        evalSteps: -1,
        batchSize: 8,
        gradAccum: 1,
        groupSize: 8,
        lr: 2e-4,
        maxSteps: steps,
        maxNewTokens: 64,
        klCoef: 0,
        evalNumPrompts: 0,
        eosPenalty: 0,
        saveRollouts: false,
        ...more,
      },
      {
        ...surroundings(lab),
        rewards: [
          function raised(batch) {
            return batch.map(({ response, example }) =>
              example === undefined ? offset : offset + task(example.task).score(response, example),
            );
          },
        ],
      },
    ),
  );
}
