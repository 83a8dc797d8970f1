/**
 * Your own preference loss: the exponential loss of boosting on DPO's margin, instead of the logistic one.
 *
 *     npm run example -- own-preference-loss [--steps 20]
 */
import { parseArgs } from 'node:util';
import { trainPreference } from 'attune';
import { definePreferenceLoss } from 'attune/algorithms';
import { preferenceRows } from 'attune/tasks';

const { values: flags } = parseArgs({ options: { steps: { type: 'string', default: '20' } } });

const exponential = definePreferenceLoss({
  name: 'exponential',
  summary: 'e^(−β(d_w − d_l)), which punishes confident mistakes hardest',
  paper: 'Tang et al. 2024, "Generalized Preference Optimization"',
  needsReference: true,
  defaults: { beta: 0.1 },
  terms: ({ w, l, options }) => w.sub(l).mul(-options.beta).exp(),
});

const pairs = (part: 'train' | 'test', count: number) => [
  ...preferenceRows({ tasks: 'number_sorting:1,spell_backward:1', seed: 1, count, part }),
];
for await (const { step, train, eval: held } of trainPreference({
  ...{ loss: exponential, model: 'models/tiny', dataset: pairs('train', 480), evalDataset: pairs('test', 64) },
  ...{ batchSize: 16, gradAccum: 1, lr: 1e-4, maxSteps: Number(flags.steps), evalSteps: 10, reportTo: ['none'] },
  ...{ outputDir: 'checkpoints/own', saveModel: false },
})) {
  console.log(`step ${step}  loss ${train.loss.toFixed(3)}`);
  if (held !== undefined) console.log(`held-out pairs ranked rightly: ${held.accuracy}`);
}
