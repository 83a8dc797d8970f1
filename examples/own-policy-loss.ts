/**
 * Your own policy loss: imitates the best response of each group and ignores the rest (a form of RAFT, Dong et al.
 * 2023).
 *
 *     npm run example -- own-policy-loss [--steps 20]
 */
import { parseArgs } from 'node:util';
import { trainPolicy } from 'attune';
import { definePolicyAlgorithm } from 'attune/algorithms';

const { values: flags } = parseArgs({ options: { steps: { type: 'string', default: '20' } } });

const imitateTheBest = definePolicyAlgorithm({
  name: 'imitate-the-best',
  summary: 'log-probabilities of the responses that beat their group',
  paper: 'Dong et al. 2023, "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment"',
  advantage: 'group-centred', // R − mean of the group
  aggregation: 'token',
  klIn: 'none',
  terms: ({ lp, advantages }) => ({ policy: lp.mul(advantages.gt(0).to(lp.dtype)).neg() }),
});

const accuracies: number[] = [];
for await (const { step, train } of trainPolicy({
  ...{ algorithm: imitateTheBest, model: 'models/tiny', task: 'spell_backward:1', maxSteps: Number(flags.steps) },
  ...{ batchSize: 8, gradAccum: 1, lr: 2e-4, maxNewTokens: 64, evalSteps: -1, evalNumPrompts: 0, reportTo: ['none'] },
  ...{ outputDir: 'checkpoints/own', saveModel: false, saveRollouts: false },
})) {
  accuracies.push(train.accuracy ?? 0);
  console.log(`step ${step}  right ${train.accuracy?.toFixed(2)}`);
}
console.log(`right in training: ${accuracies[0]} → ${accuracies.at(-1)}`);
