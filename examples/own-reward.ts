/**
 * Your own reward: right answers earn 1, and length costs a little, so that the policy learns to be brief.
 *
 *     npm run example -- own-reward [--steps 20]
 */
import { parseArgs } from 'node:util';
import { type RewardItem, trainPolicy } from 'attune';
import { task } from 'attune/tasks';

const { values: flags } = parseArgs({ options: { steps: { type: 'string', default: '20' } } });

/** Named parts are added up, and each is logged: train/reward_briefly_right, train/reward_briefly_length. */
function briefly(batch: readonly RewardItem[]) {
  return batch.map(({ response, example }) => ({
    right: example === undefined ? 0 : task(example.task).score(response, example),
    length: -0.002 * response.length,
  }));
}

let last = '';
for await (const { step, train } of trainPolicy(
  {
    ...{ algorithm: 'rloo', model: 'models/tiny', task: 'spell_backward:1', verifierReward: false },
    ...{ batchSize: 8, gradAccum: 1, lr: 2e-4, maxNewTokens: 64, maxSteps: Number(flags.steps), evalSteps: -1 },
    ...{ evalNumPrompts: 0, outputDir: 'checkpoints/own', saveModel: false, saveRollouts: false, reportTo: ['none'] },
  },
  { rewards: [briefly] },
)) {
  last = `right ${train.accuracy?.toFixed(2)}  tokens ${train.length_mean?.toFixed(0)}  reward ${train.reward.toFixed(2)}`;
  console.log(`step ${step}  ${last}`);
}
console.log(`at the end: ${last}`);
