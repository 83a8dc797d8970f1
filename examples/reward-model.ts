/**
 * A reward model (Bradley–Terry on pairs) from scratch, on attune's public API: a language model with a scalar head,
 * trained so that the chosen response of each pair scores higher.
 *
 *     npm run example -- reward-model [--model models/tiny] [--tasks number_sorting:1] [--pairs 1600] [--save ./my-reward-model]
 *
 * It prints the accuracy on held-out pairs before and after training, and draws the loss. `--save` writes an ordinary
 * reward model, which `attune score --checkpoint ./my-reward-model` reads.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { lineChart, toPng } from 'attune';
import { type Batch, Batches, openDataset, tokenise } from 'attune/data';
import { headOutputs, loadModel, loadTokenizer, packSequences, responsesOf, saveModel } from 'attune/models';
import { AdamW, clipGradNorm } from 'attune/nn';
import { preferenceRows } from 'attune/tasks';
import { scope, seed as seedEngine, tensor } from 'attune/tensor';

const { values: flags } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/tiny' },
    tasks: { type: 'string', default: 'number_sorting:1' },
    pairs: { type: 'string', default: '1600' },
    out: { type: 'string', default: 'reward-model.png' },
    save: { type: 'string' },
  },
});
const [lr, batchSize, seed] = [1e-3, 16, 42];

const tokenizer = await loadTokenizer(flags.model);
const model = await loadModel(flags.model, { dtype: 'float32' });
seedEngine(seed);
const head = model.addHead('reward', 1);
model.decoder.requiresGrad_();
head.weight.requiresGrad_();
const optimizer = new AdamW(model.trainable(), { lr });

async function pairsOf(part: 'train' | 'test', count: number) {
  const rows = [...preferenceRows({ tasks: flags.tasks, count, seed, part })];
  return tokenise(await openDataset(rows, { shape: 'preference' }), tokenizer, { maxLength: 512, cache: false });
}
await using train = await pairsOf('train', Number(flags.pairs));
await using test = await pairsOf('test', 200);

/**
 * One gradient step on −log σ(r_w − r_l), averaged over the batch's pairs. The score r is the head's output at a
 * response's last token.
 */
function update(batch: Batch): number {
  const { decoder } = model;
  const loss = scope(() => {
    const responses = responsesOf(batch);
    const packed = packSequences(responses.map(({ ids }) => ids));
    const last = tensor(
      packed.starts.slice(1).map((end) => end - 1),
      { dtype: 'int64' },
    );
    return decoder
      .backward(packed, (hidden) => {
        const [chosen, rejected] = head.forward(hidden.indexSelect(0, last)).squeeze(-1).split(batch.examples);
        if (chosen === undefined || rejected === undefined) throw new Error('a batch of pairs has two halves');
        return chosen.sub(rejected).logSigmoid().mean().neg();
      })
      .item();
  });
  clipGradNorm(optimizer.parameters, 1);
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
}

async function accuracy(): Promise<number> {
  let [right, all] = [0, 0];
  for await (const batch of new Batches(test, { batchSize, order: 'sequential' })) {
    const scores = headOutputs(
      model,
      responsesOf(batch).map(({ ids }) => ({ ids, places: [ids.length - 1] })),
    ).map(([score]) => score as number);
    for (let i = 0; i < batch.examples; i++)
      if ((scores[i] as number) > (scores[batch.examples + i] as number)) right++;
    all += batch.examples;
  }
  return right / all;
}

const before = await accuracy();
const losses: number[] = [];
for await (const batch of new Batches(train, { batchSize, seed })) {
  losses.push(update(batch));
  console.log(`step ${losses.length}  loss ${losses.at(-1)?.toFixed(4)}`);
}
console.log(`held-out pairs ranked right: ${before} → ${await accuracy()}`);
if (flags.save !== undefined) {
  saveModel(model, flags.save);
  await tokenizer.save(flags.save);
}
const series = [{ name: 'loss', x: losses.map((_, i) => i + 1), y: losses }];
writeFileSync(flags.out, await toPng(lineChart({ title: 'Reward model: loss of each step', xLabel: 'step', series })));
