/** Decoding in f16 by the plan: what the general path gives, also where x times a norm's weight would be no f16 number. */
import { describe, expect, it } from 'vitest';
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import { generalLogits } from '../../src/models/generate/decoding.ts';
import { DecodePlan, type StepRows } from '../../src/models/generate/plan.ts';
import { initModel, type Model, quantTypes } from '../../src/models/index.ts';
import { type DType, integers, noGrad, randn, scope, seed } from '../../src/tensor/index.ts';
import { device, gap, hasCuda, onlyOnCuda } from './device.ts';

const dtype: DType = hasCuda ? 'float16' : 'float32';
const SLOTS = 33;
const VOCABULARY = 200;
/** f16 has 11 digits; two layers of them. */
const BOUND = 5e-3;

/** The last has the shape of a layer of Qwen3-0.6B, whose products are kernels of their own. */
const shapes = [
  { size: 64, heads: 6, groups: 2, width: 256, inner: 512 },
  { size: 80, heads: 4, groups: 2, width: 320, inner: 480 },
  { size: 96, heads: 4, groups: 1, width: 288, inner: 800 },
  { size: 256, heads: 2, groups: 2, width: 128, inner: 96 },
  { size: 128, heads: 16, groups: 8, width: 1024, inner: 3072 },
];

const configOf = ({ size, heads, groups, width, inner }: (typeof shapes)[number]) => ({
  ...{ model_type: 'qwen3', vocab_size: VOCABULARY, hidden_size: width, intermediate_size: inner },
  ...{ num_hidden_layers: 2, num_attention_heads: heads, num_key_value_heads: groups, head_dim: size },
  ...{ max_position_embeddings: 128, rms_norm_eps: 1e-6, tie_word_embeddings: false },
});

/** Parameters are multiplied by what `factor` says of their name; a norm's are random before. */
function modelOf(shape: (typeof shapes)[number], factor: (name: string) => number = () => 1): Model {
  const made = initModel(configOf(shape), { seed: 1, device, dtype });
  seed(7);
  scope(() =>
    noGrad(() => {
      for (const [name, parameter] of made.decoder.parameters()) {
        if (parameter.ndim === 1)
          parameter.copy_(
            randn([...parameter.shape])
              .mul(0.2)
              .add(1),
          );
        parameter.mul_(factor(name));
      }
    }),
  );
  return made;
}

/** Runs the body with a plan and its cache, and a cache for the general path; the slots' blocks are in no order. */
function bothPaths(model: Model, body: (plan: DecodePlan, cache: KvCache) => void): void {
  const cacheOf = () => {
    const cache = new KvCache(model.decoder.spec, { slots: SLOTS, length: 64, blocks: SLOTS }, { dtype, device });
    for (let slot = 0; slot < SLOTS; slot++) cache.setTable(slot, [(slot * 10 + 4) % SLOTS]);
    cache.upload();
    return cache;
  };
  const caches = [cacheOf(), cacheOf()] as const;
  const plan = DecodePlan.of(model.decoder, caches[0]) as DecodePlan;
  scope(() => noGrad(() => body(plan, caches[1])));
  for (const each of [plan, ...caches]) each.dispose();
}

function rowsOf(ids: number[], position: number): StepRows {
  const at = (value: (i: number) => number) =>
    integers(
      ids.map((_, i) => value(i)),
      { device },
    );
  return { ids: at((i) => ids[i] as number), positions: at(() => position), slots: at((i) => SLOTS - 1 - i) };
}

const idsOf = (count: number, turn: number) =>
  Array.from({ length: count }, (_, i) => (37 * i + 11 * turn) % VOCABULARY);

describe(`decoding in f16 on ${device}`, () => {
  it.each(shapes)('is what the general path gives: heads of $size, $width wide', (shape) => {
    using model = modelOf(shape);
    for (const count of [1, 2, 7, 8, 9, 15, 16, 17, 33])
      bothPaths(model, (plan, cache) => {
        for (let t = 0; t < 3; t++) {
          const rows = rowsOf(idsOf(count, t), t);
          const found = plan.logits(rows);
          expect(found.dtype).toBe(dtype);
          expect(gap(found, generalLogits(model.decoder, cache, rows)), `${count} rows`).toBeLessThanOrEqual(BOUND);
        }
      });
  });

  // x is some hundreds and the weights 2,000: the products are beyond 65,504, and what a norm gives is not
  it.each([shapes[0], shapes[4]] as typeof shapes)('holds with large weights of norms: $width wide', (shape) => {
    using model = modelOf(shape, (name) => {
      if (/input_layernorm|post_attention_layernorm/.test(name)) return 2000;
      if (/gate_proj|up_proj/.test(name)) return 0.005;
      return /embed_tokens/.test(name) ? 10_000 : 1;
    });
    for (const count of [1, 9, 16])
      bothPaths(model, (plan, cache) => {
        for (let t = 0; t < 3; t++) {
          const rows = rowsOf(idsOf(count, t), t);
          const found = plan.logits(rows);
          expect(Number.isFinite(found.to('float32').abs().max().item())).toBe(true);
          expect(gap(found, generalLogits(model.decoder, cache, rows)), `${count} rows`).toBeLessThanOrEqual(BOUND);
        }
      });
  });

  it('gives the same greedy tokens, or one of two that are level', () => {
    using model = modelOf(shapes[0] as (typeof shapes)[number]);
    bothPaths(model, (plan, cache) => {
      let ids = idsOf(9, 0);
      let same = 0;
      for (let t = 0; t < 40; t++) {
        const rows = rowsOf(ids, t);
        const chosen = plan.logits(rows).argmax(-1).numbers();
        const general = generalLogits(model.decoder, cache, rows).to('float32');
        const level = BOUND * general.abs().max().item();
        const wanted = general.tolist() as number[][];
        ids = wanted.map((logits, i) => {
          const most = Math.max(...logits);
          expect(logits[chosen[i] as number], `token ${t} of row ${i}`).toBeGreaterThanOrEqual(most - level);
          const id = logits.indexOf(most);
          if (id === chosen[i]) same++;
          return id;
        });
      }
      expect(same).toBeGreaterThanOrEqual(0.9 * 9 * 40);
    });
  });
});

onlyOnCuda('quantised matrices in f16', () => {
  it.each(quantTypes)('have no plan, and take the general path: %s', (quantType) => {
    const config = configOf(shapes[0] as (typeof shapes)[number]);
    for (const [type, planned] of [
      ['float16', false],
      ['bfloat16', true],
    ] as const) {
      using model = initModel(config, { seed: 1, device, dtype: type, quantType });
      const cache = new KvCache(model.decoder.spec, { slots: 2, length: 64, blocks: 2 }, { dtype: type, device });
      const plan = DecodePlan.of(model.decoder, cache);
      expect(plan !== null).toBe(planned);
      plan?.dispose();
      cache.dispose();
    }
  });
});
