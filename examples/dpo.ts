/**
 * DPO (Rafailov et al. 2023) from scratch, on attune's public API. It needs no sampling and no reward model, only
 * pairs, the policy and a frozen copy of it.
 *
 *     npm run example -- dpo [--model models/tiny] [--tasks spell_backward:1] [--pairs 800] [--out dpo.png]
 *
 * The pairs are worked solutions of small problems, one right and one with a slip. It prints the accuracy on held-out
 * pairs before and after training, and draws the loss.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { lineChart, toPng } from 'attune';
import { Batches, openDataset, tokenise } from 'attune/data';
import {
  loadModel,
  loadTokenizer,
  type PromptedResponse,
  packResponses,
  responseLogprobs,
  responsesOf,
  tokenLogprobs,
} from 'attune/models';
import { AdamW, clipGradNorm } from 'attune/nn';
import { preferenceRows } from 'attune/tasks';
import { scope, stack, tensor } from 'attune/tensor';

const { values: flags } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/tiny' },
    tasks: { type: 'string', default: 'spell_backward:1' },
    pairs: { type: 'string', default: '800' },
    out: { type: 'string', default: 'dpo.png' },
  },
});
const [beta, lr, batchSize, seed] = [0.1, 1e-4, 16, 42];

const tokenizer = await loadTokenizer(flags.model);
const policy = await loadModel(flags.model, { dtype: 'float32' });
const reference = await loadModel(flags.model, { dtype: 'float32' });
const optimizer = new AdamW(policy.decoder.requiresGrad_().parameters(), { lr });

async function pairsOf(part: 'train' | 'test', count: number) {
  const rows = [...preferenceRows({ tasks: flags.tasks, count, seed, part })];
  return tokenise(await openDataset(rows, { shape: 'preference' }), tokenizer, { maxLength: 512, cache: false });
}
await using train = await pairsOf('train', Number(flags.pairs));
await using test = await pairsOf('test', 100);

/** A batch: the chosen responses of all pairs, then the rejected ones. */
interface Pairs {
  responses: PromptedResponse[];
  /** Σ log π of each response under the reference. */
  lpRef: number[];
}

async function* batches(store: typeof train, order: 'shuffled' | 'sequential'): AsyncGenerator<Pairs> {
  for await (const batch of new Batches(store, { batchSize, seed, order })) {
    const responses = responsesOf(batch);
    yield { responses, lpRef: responseLogprobs(reference.decoder, responses) };
  }
}

/** One gradient step on −log σ(β(d_w − d_l)), averaged over the batch's pairs, with d = log π(y|x) − log π_ref(y|x). */
function update({ responses, lpRef }: Pairs): number {
  const { decoder } = policy;
  const loss = scope(() => {
    const packed = packResponses(responses, decoder);
    return decoder
      .backward(packed.batch, (hidden) => {
        const { logp } = tokenLogprobs(decoder, hidden, packed.batch, packed.tokens);
        const sums = stack(logp.split(packed.lengths).map((response) => response.sum()));
        const [chosen, rejected] = sums.sub(tensor(lpRef)).split(responses.length / 2);
        if (chosen === undefined || rejected === undefined) throw new Error('a batch of pairs has two halves');
        return chosen.sub(rejected).mul(beta).logSigmoid().mean().neg();
      })
      .item();
  });
  clipGradNorm(optimizer.parameters, 1);
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
}

/** The implicit reward's accuracy: the share of pairs whose log-ratio d is larger for the chosen response. */
async function accuracy(): Promise<number> {
  let [right, all] = [0, 0];
  for await (const { responses, lpRef } of batches(test, 'sequential')) {
    const moved = responseLogprobs(policy.decoder, responses).map((lp, i) => lp - (lpRef[i] as number));
    const pairs = moved.length / 2;
    for (let i = 0; i < pairs; i++) if ((moved[i] as number) > (moved[pairs + i] as number)) right++;
    all += pairs;
  }
  return right / all;
}

const losses: number[] = [];
for await (const pairs of batches(train, 'shuffled')) {
  losses.push(update(pairs));
  console.log(`step ${losses.length}  loss ${losses.at(-1)?.toFixed(4)}`);
}
console.log(`held-out pairs ranked right: ${await accuracy()}`);
const series = [{ name: 'loss', x: losses.map((_, i) => i + 1), y: losses }];
writeFileSync(flags.out, await toPng(lineChart({ title: 'DPO: loss of each step', xLabel: 'step', series })));
