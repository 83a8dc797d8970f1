/**
 * Your own environment: a sorting problem with three tries, of which the first earns most.
 *
 *     npm run example -- own-environment [--steps 20]
 */
import { parseArgs } from 'node:util';
import { trainPolicy } from 'attune';
import { defineEnvironment } from 'attune/environments';
import { task } from 'attune/tasks';

const { values: flags } = parseArgs({ options: { steps: { type: 'string', default: '20' } } });
const sorting = task('number_sorting');

const threeTries = defineEnvironment({
  name: 'three_tries',
  judged: true,
  start({ seed }) {
    const problem = sorting.generate(seed, 1);
    return {
      messages: problem.prompt,
      step(response, { turn }) {
        const success = sorting.score(response, problem) === 1;
        return { observation: 'No. Try again.', reward: success ? 1 / turn : 0, success, done: success || turn === 3 };
      },
    };
  },
});

let last = '';
for await (const { step, train } of trainPolicy({
  ...{ algorithm: 'rloo', model: 'models/tiny', env: threeTries, maxNewTokens: 200, maxSteps: Number(flags.steps) },
  ...{ batchSize: 4, gradAccum: 1, lr: 2e-4, evalSteps: -1, outputDir: 'checkpoints/own', saveModel: false },
  ...{ saveRollouts: false, reportTo: ['none'] },
})) {
  last = `solved ${train.accuracy?.toFixed(2)}  turns ${train.turns?.toFixed(1)}  reward ${train.reward.toFixed(2)}`;
  console.log(`step ${step}  ${last}`);
}
console.log(`at the end: ${last}`);
