/** Chapter 1. The same number of steps on few examples again and again, and on examples that are always new. */
import { join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { initModel, loadTokenizer, saveModel } from '../../models/index.ts';
import { chatRows } from '../../tasks/index.ts';
import { trainSft } from '../../trainers/sft/sft.ts';
import type { Curve, Experiment, Lab } from './experiment.ts';
import { heldCurve, recorded, settings, surroundings, trainCurve } from './workbench.ts';

const tasks = 'spell_backward:1';
const steps = 260;
const few = 48;

export const sft: Experiment = {
  seconds: 100,
  async run(lab) {
    const model = await untrained(lab);
    const held = [...chatRows({ tasks, seed: lab.seed, count: 128, part: 'test' })];
    const train = (name: string, count: number) =>
      recorded(
        lab,
        trainSft(
          {
            ...settings(lab, name),
            model,
            maxSteps: steps,
            epochs: 1000,
            lr: 3e-3,
            batchSize: 16,
            gradAccum: 1,
            dataset: [...chatRows({ tasks, seed: lab.seed, count, part: 'train' })],
            evalDataset: held,
            evalSteps: 10,
            evalNumBatches: 16,
            evalBatchSize: 8,
            maxLength: 256,
          },
          { ...surroundings(lab), cache: false },
        ),
      );
    const again = await train('few', few);
    const many = await train('many', 16 * steps);
    const fewHeld = heldCurve(`${few} examples, held out`, again, 'loss');
    const manyHeld = heldCurve('new examples, held out', many, 'loss');
    const first = again.steps[0]?.train.loss as number;
    const fewTrained = trainCurve(`${few} examples, trained on`, again, 'loss', 4);
    const manyTrained = trainCurve('new examples, trained on', many, 'loss', 4);
    const last = ({ y }: Curve) => y.at(-1) as number;
    return {
      figures: [
        {
          title: 'Loss (mean of −log π over the response’s tokens)',
          xLabel: 'step',
          yLabel: 'nats per token',
          curves: [fewTrained, fewHeld, manyTrained, manyHeld],
        },
      ],
      findings: [
        {
          claim: 'an untrained model’s loss is the logarithm of the vocabulary’s size',
          holds: Math.abs(first - Math.log(512)) < 0.4,
          numbers: `${first.toFixed(2)} and ln 512 = ${Math.log(512).toFixed(2)}`,
        },
        {
          claim: 'few examples are learnt by heart: the training loss goes to zero, what is held out stays behind',
          holds: last(fewTrained) < 0.05 && last(fewHeld) > 5 * last(fewTrained) + 0.05,
          numbers: `${last(fewTrained).toFixed(3)} trained on, ${last(fewHeld).toFixed(2)} held out`,
        },
        {
          claim: 'on examples that are always new, the training loss tells the truth',
          holds: Math.abs(last(manyHeld) - last(manyTrained)) < 0.25,
          numbers: `${last(manyTrained).toFixed(2)} trained on, ${last(manyHeld).toFixed(2)} held out`,
        },
      ],
    };
  },
};

/** A model of the shipped one's shape with random weights. */
async function untrained(lab: Lab): Promise<string> {
  const folder = join(lab.folder, 'untrained');
  makeFolder(folder);
  const shape = {
    model_type: 'qwen3',
    vocab_size: 512,
    hidden_size: 128,
    intermediate_size: 384,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 32,
    max_position_embeddings: 1024,
    tie_word_embeddings: true,
    eos_token_id: 2,
  };
  using model = initModel(shape, { seed: lab.seed });
  await saveModel(model, folder);
  await (await loadTokenizer(lab.model)).save(folder);
  return folder;
}
