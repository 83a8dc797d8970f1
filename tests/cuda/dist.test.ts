/**
 * The collectives of distributed training in a world of one: NCCL on a GPU, Gloo elsewhere. An optimiser and weights that are dealt
 * over this one rank go through all of them and must train as an optimiser that knows of no ranks.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Shard } from '../../src/dist/shard/optimizer.ts';
import { ShardedAdamW } from '../../src/dist/shard/sharded-adamw.ts';
import { SharedStore } from '../../src/dist/store.ts';
import { SharedWorld } from '../../src/dist/world.ts';
import { initModel, packSequences, scoredTokens, tokenLogprobs } from '../../src/models/index.ts';
import { AdamW } from '../../src/nn/index.ts';
import { type DType, keep, tensor, zeros } from '../../src/tensor/index.ts';
import { GradientSums } from '../../src/trainers/loop/update.ts';
import { device, hasCuda } from './device.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-dist-one-'));
afterAll(() => rmSync(folder, { recursive: true }));

let world: SharedWorld;
beforeAll(async () => {
  const store = await SharedStore.file(join(folder, 'store'), 1);
  world = await SharedWorld.open(store, { rank: 0, size: 1, localSize: 1, host: '127.0.0.1' }, { timeoutMs: 60_000 });
});

it(`every collective gives back what it was given, on ${device}`, async () => {
  const group = world.groupFor(device);
  const given = [1, 2, 3];
  const values = () => keep(tensor(given, { device }));
  const other = () => keep(zeros([3], { device }));
  const [sum, most, sent, gathered, scattered, swapped] = [values(), values(), values(), other(), other(), other()];
  await group.allReduce(sum);
  await group.allReduce(most, 'max');
  await group.broadcast(sent);
  await group.allGather(gathered, sum);
  await group.reduceScatter(scattered, sum);
  await group.allToAll(swapped, sum);
  await group.barrier();
  for (const each of [sum, most, sent, gathered, scattered, swapped]) {
    expect(Array.from(each.numbers())).toEqual(given);
    each.dispose();
  }
});

const shape = {
  model_type: 'qwen3',
  architectures: ['Qwen3ForCausalLM'],
  hidden_size: 64,
  intermediate_size: 160,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 320,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 1e4,
  hidden_act: 'silu',
  tie_word_embeddings: false,
  initializer_range: 0.2,
};
const sequence = (length: number, key: number) => Array.from({ length }, (_, i) => (i * 37 + key * 11 + 5) % 320);

/** The losses of a few updates of two micro-batches each. */
async function losses(shard: Shard, dtype: DType): Promise<number[]> {
  using model = initModel(shape, { seed: 1, device, dtype });
  const { decoder } = model;
  decoder.requiresGrad_();
  const settings = { lr: 1e-2, weightDecay: 0.1 };
  using optimizer =
    shard === 'none'
      ? new AdamW(model.trainable(), settings)
      : new ShardedAdamW(model.trainable(), settings, world, shard === 'full' ? new Map(decoder.tensors()) : null);
  decoder.residence = optimizer instanceof ShardedAdamW ? optimizer.weights : null;
  const gradients = new GradientSums({ optimizer, decoder, world, exact: false, seed: 1 });
  const batches = [[sequence(24, 1)], [sequence(9, 2), sequence(17, 3)]];
  const backward = (batch: number[][]) => {
    const packed = packSequences(batch, device);
    const starts = [0];
    for (const { length } of batch) starts.push((starts.at(-1) as number) + length);
    const tokens = scoredTokens(starts, new Array(starts.at(-1)).fill(1));
    const loss = decoder.backward(packed, (hidden) =>
      tokenLogprobs(decoder, hidden, packed, tokens).logp.mean().mul(-0.5),
    );
    return { loss };
  };
  const found: number[] = [];
  for (let step = 0; step < 4; step++) {
    const work = { batches, backward, cost: () => 1, key: [step, 0], check: () => {} };
    const { metrics } = await gradients.update(work, 1);
    found.push(metrics.loss as number);
  }
  if (optimizer instanceof ShardedAdamW) await optimizer.weights?.makeWhole();
  return found;
}

describe.each([
  ['float32', 1e-5],
  // One rank alone adds up micro-batches in bf16, sharded weights in f32.
  ['bfloat16', 3e-2],
] as const)(`in %s on ${device}`, (dtype, bound) => {
  it.each(['optimizer', 'full'] as const)('--shard %s: the losses of an optimiser that is not dealt', async (shard) => {
    const [plain, dealt] = [await losses('none', dtype), await losses(shard, dtype)];
    expect(plain.at(-1)).toBeLessThan(0.9 * (plain[0] as number));
    for (const [i, loss] of dealt.entries()) expect(Math.abs(loss - (plain[i] as number))).toBeLessThan(bound * loss);
    if (hasCuda) console.log(`--shard ${shard} in ${dtype}: ${dealt.join(' ')} (none: ${plain.join(' ')})`);
  });
});
