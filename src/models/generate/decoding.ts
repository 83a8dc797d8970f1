/**
 * The two forward passes of generation: prefill (packed prompts into the cache) and the general path of decoding (one token per
 * row). Both run the decoder's own blocks, so they work for every family, adapter and quantised weight; only the attention
 * differs. Where native code supports the whole model, decoding uses a plan instead (plan.ts).
 */
import { aten, type Tensor, tensor } from '../../tensor/index.ts';
import { packSequences } from '../decoder/batch.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Layer, Pass } from '../decoder/layer.ts';
import { applyNorm } from '../decoder/norm.ts';
import type { KvCache } from './cache.ts';
import type { StepRows } from './plan.ts';

/** A prompt and the cache slots of its samples. */
export interface PrefillItem {
  prompt: ArrayLike<number>;
  slots: readonly number[];
}

/** Runs each prompt once, fills the slots of its samples, and returns the hidden state of each prompt's last token. */
export function prefill(decoder: Decoder, cache: KvCache, items: readonly PrefillItem[]): Tensor {
  const device = decoder.device;
  const batch = packSequences(
    items.map((item) => item.prompt),
    device,
  );
  const { from, to } = cacheRows(items, batch.starts, cache.length);
  const source = tensor(from, { device });
  const target = tensor(to, { device });
  const store = (slots: Tensor, rows: Tensor) => slots.flatten(0, 1).indexCopy_(0, target, rows.indexSelect(0, source));
  const pass = decoder.pass(batch);
  const { attend } = pass;
  const filling: Pass = {
    ...pass,
    attend: (layer, q, k, v) => {
      store(cache.keys[layer] as Tensor, k);
      store(cache.values[layer] as Tensor, v);
      return attend(layer, q, k, v);
    },
  };
  const last = tensor(
    BigInt64Array.from(batch.starts.slice(1), (end) => BigInt(end - 1)),
    { device },
  );
  const { layers } = decoder;
  const x = decoder.blocks(decoder.embed(batch.ids, batch.positions), filling, layers.slice(0, -1));
  // In the last block only the prompts' last tokens need a result; the others leave their keys and values.
  return applyNorm(decoder.weights.finalNorm, decoder.blocks(x, { ...filling, only: last }, layers.slice(-1)));
}

/** Which packed row goes to which row of the cache: every token of a prompt to the slot of each of its samples. */
function cacheRows(
  items: readonly PrefillItem[],
  starts: readonly number[],
  length: number,
): { from: BigInt64Array; to: BigInt64Array } {
  const count = items.reduce((sum, item) => sum + item.prompt.length * item.slots.length, 0);
  const from = new BigInt64Array(count);
  const to = new BigInt64Array(count);
  let at = 0;
  items.forEach((item, i) => {
    for (const slot of item.slots) {
      for (let token = 0; token < item.prompt.length; token++) {
        from[at] = BigInt((starts[i] as number) + token);
        to[at++] = BigInt(slot * length + token);
      }
    }
  });
  return { from, to };
}

/** A prompt whose first tokens are already in its slot. */
export interface ContinuedPrompt {
  prompt: ArrayLike<number>;
  slot: number;
  /** How many of its tokens are in the slot. */
  from: number;
}

/**
 * Computes the rest of prompts whose beginnings are in the cache, and returns the hidden state of each prompt's last token. All
 * tokens go through a block at once, each as a row of its own: the keys and values of all are written first, and a row's
 * attention ends at its own position.
 */
export function continuePrompts(decoder: Decoder, cache: KvCache, items: readonly ContinuedPrompt[]): Tensor {
  const { device } = decoder;
  const tokens = items.flatMap(({ prompt, slot, from }) =>
    Array.from({ length: prompt.length - from }, (_, i) => ({ id: prompt[from + i] as number, slot, place: from + i })),
  );
  const whole = (pick: (token: { id: number; slot: number; place: number }) => number) =>
    tensor(
      BigInt64Array.from(tokens, (token) => BigInt(pick(token))),
      { device },
    );
  const positions = whole(({ place }) => place);
  const target = whole(({ slot, place }) => slot * cache.length + place);
  const { attend, rope, training } = generalPass(
    decoder,
    cache,
    positions,
    whole(({ slot }) => slot),
  );
  const store = (slots: Tensor, rows: Tensor) => slots.flatten(0, 1).indexCopy_(0, target, rows);
  const pass: Pass = {
    rope,
    training,
    attend: (layer, q, k, v) => {
      store(cache.keys[layer] as Tensor, k);
      store(cache.values[layer] as Tensor, v);
      return attend(layer, q, k, v);
    },
  };
  let end = 0;
  const ends = items.map(({ prompt, from }) => {
    end += prompt.length - from;
    return BigInt(end - 1);
  });
  const only = tensor(BigInt64Array.from(ends), { device });
  const { layers } = decoder;
  const x = decoder.blocks(
    decoder.embed(
      whole(({ id }) => id),
      positions,
    ),
    pass,
    layers.slice(0, -1),
  );
  return applyNorm(decoder.weights.finalNorm, decoder.blocks(x, { ...pass, only }, layers.slice(-1)));
}

/** The logits of each row's next token, [rows, vocabulary]. */
export function generalLogits(decoder: Decoder, cache: KvCache, rows: StepRows): Tensor {
  const embedded = decoder.embed(rows.ids, rows.positions);
  const hidden = decoder.blocks(embedded, decodePass(decoder, cache, rows, embedded));
  return decoder.logits(applyNorm(decoder.weights.finalNorm, hidden));
}

/** The pass of a step whose rows are at `positions` of `slots`. */
function generalPass(decoder: Decoder, cache: KvCache, positions: Tensor, slots: Tensor): Pass {
  const bias = decoder.biasUpTo(cache.length);
  return {
    rope: decoder.ropeFor(positions, cache.length),
    training: false,
    attend: (layer, q, k, v) =>
      aten(
        'attune::decode_attention',
        q,
        k,
        v,
        cache.keys[layer],
        cache.values[layer],
        slots,
        positions,
        decoder.attentionScale(layer),
        decoder.spec.attention.windows[layer] ?? 0,
        bias,
      ),
  };
}

function decodePass(decoder: Decoder, cache: KvCache, { positions, slots }: StepRows, embedded: Tensor): Pass {
  const { attention } = decoder.spec;
  // Working in place gains nothing on the CPU.
  const pass = { ...generalPass(decoder, cache, positions, slots), inPlace: decoder.device !== 'cpu' };
  if (!attentionFits(decoder, embedded)) return pass;
  const { rope } = pass;
  const attendFused = ({ index, weights: { qNorm, kNorm } }: Layer, qkv: Tensor): Tensor =>
    aten(
      'attune::decode_fused',
      qkv,
      qNorm?.weight ?? null,
      kNorm?.weight ?? null,
      qNorm?.eps ?? 0,
      rope?.cos ?? null,
      rope?.sin ?? null,
      rope?.interleaved ?? false,
      cache.keys[index],
      cache.values[index],
      slots,
      positions,
      attention.heads,
      decoder.attentionScale(index),
      attention.windows[index] ?? 0,
    );
  return { ...pass, attendFused };
}

/** Whether native/ops/decode/fused.cc does this decoder's q/k norm, rope, cache write and attention. */
function attentionFits(decoder: Decoder, x: Tensor): boolean {
  const { attention, positions } = decoder.spec;
  const plain = attention.layout === 'blocked' && positions.kind !== 'alibi' && attention.qkNorm?.over !== 'all';
  return plain && aten<boolean>('attune::decode_fused_fits', x, attention.headDim);
}
