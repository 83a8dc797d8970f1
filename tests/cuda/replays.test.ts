/**
 * A captured decoding step, replayed again and again with other inputs while a second stream keeps the device busy: the kernels of a
 * step overlap, and each result has to be the same to the bit as that of a step which had the device to itself.
 */
import { expect, it } from 'vitest';
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import { DecodePlan } from '../../src/models/generate/plan.ts';
import { initModel } from '../../src/models/index.ts';
import {
  Graph,
  integers,
  keep,
  noGrad,
  randn,
  Stream,
  scope,
  seed,
  synchronize,
  type Tensor,
  zeros,
} from '../../src/tensor/index.ts';
import { onlyOnCuda } from './device.ts';

/** Layers of Qwen3-0.6B's and 1.7B's shape: their products begin before x is known. */
const configOf = (width: number) => ({
  ...{ model_type: 'qwen3', vocab_size: 256, hidden_size: width, intermediate_size: 3 * width, num_hidden_layers: 3 },
  ...{ num_attention_heads: 16, num_key_value_heads: 8, head_dim: 128, max_position_embeddings: 256 },
  ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false },
});
const device = 'cuda:0';
const REPLAYS = 120;
const cases = (['bfloat16', 'float16'] as const).flatMap((dtype) => [
  ...[1, 7, 8, 9, 16].map((count) => ({ dtype, count, width: 1024 })),
  ...[1, 16, 32].map((count) => ({ dtype, count, width: 2048 })),
  ...[33, 64, 100, 128].map((count) => ({ dtype, count, width: 1024 })),
  { dtype, count: 64, width: 2048 },
]);
const SLOTS = 128;

onlyOnCuda('replays of a decoding step', () => {
  it.each(cases)('are the same to the bit: $count rows in $dtype, $width wide', ({ dtype, count, width }) => {
    seed(3);
    using model = initModel(configOf(width), { seed: 1, device, dtype });
    const cache = new KvCache(model.decoder.spec, { slots: SLOTS, length: 256, blocks: 4 * SLOTS }, { dtype, device });
    for (let slot = 0; slot < SLOTS; slot++)
      cache.setTable(
        slot,
        Array.from({ length: 4 }, (_, i) => (slot * 4 + i * 21) % (4 * SLOTS)),
      );
    cache.upload();
    const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
    scope(() =>
      noGrad(() => {
        for (const each of [...cache.keys, ...cache.values]) each.copy_(randn([...each.shape]));
        const at = (value: (i: number) => number) =>
          integers(
            Array.from({ length: count }, (_, i) => value(i)),
            { device },
          );
        const inputs = [0, 1, 2].map((turn) => at((i) => (i * 37 + turn * 101) % 256));
        const rows = { ids: at(() => 0), positions: at((i) => (i * 29) % 256), slots: at((i) => SLOTS - 1 - i) };
        const [written, logits] = [cache.values.at(-1) as Tensor, zeros([count, 256], { dtype, device })];
        // on its own: no kernel of another step, and nothing else, is on the device
        const alone = inputs.map((ids) => {
          rows.ids.copy_(ids);
          synchronize(device);
          plan.logits(rows);
          return written.clone();
        });
        const graph = Graph.capture(() => scope(() => void logits.copy_(plan.logits(rows))));
        const first = inputs.map((ids) => {
          rows.ids.copy_(ids);
          graph.replay();
          return logits.clone();
        });
        const [noise, beside] = [new Stream(device), keep(randn([1 << 20], { device }))];
        for (let i = 0; i < REPLAYS; i++) {
          const turn = i % 3;
          noise.read(() => void beside.mul_(1.000001));
          rows.ids.copy_(inputs[turn] as Tensor);
          for (let again = 0; again <= i % 4; again++) graph.replay();
          expect(
            logits
              .eq(first[turn] as Tensor)
              .all()
              .item(),
            `logits, replay ${i}`,
          ).toBe(1);
          expect(
            written
              ?.eq(alone[turn] as Tensor)
              .all()
              .item(),
            `values, replay ${i}`,
          ).toBe(1);
        }
        synchronize(device);
        graph.dispose();
        beside.dispose();
      }),
    );
    plan.dispose();
    cache.dispose();
  });
});
