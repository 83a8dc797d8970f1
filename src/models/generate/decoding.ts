/**
 * The two forward passes of generation: prefill (prompts, packed, into the cache) and decode (one token per row). Both are
 * the decoder's own blocks; only the attention differs.
 */
import { aten, type Tensor, tensor } from '../../tensor/index.ts';
import { packSequences } from '../decoder/batch.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Pass } from '../decoder/layer.ts';
import { applyNorm } from '../decoder/norm.ts';
import type { KvCache } from './cache.ts';
import { attendFused, attentionFits, type DecodeStep, decodeLayers, layersFit } from './decode-layer.ts';

/** A prompt and the cache slots of all the samples that continue it. */
export interface PrefillItem {
  prompt: ArrayLike<number>;
  slots: readonly number[];
}

/** Runs the prompts once each, fills their slots, and returns the hidden state of each prompt's last token. */
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
  // of the prompts' other tokens the last block only leaves keys and values
  return applyNorm(decoder.weights.finalNorm, decoder.blocks(x, { ...filling, only: last }, layers.slice(-1)));
}

/** Which packed row goes to which row of the cache: every token of a prompt to every slot that shares it. */
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

/** The hidden state after one more token per row: `ids[i]` at `positions[i]` of slot `slots[i]`. */
export function decode(decoder: Decoder, cache: KvCache, ids: Tensor, positions: Tensor, slots: Tensor): Tensor {
  const step: DecodeStep = { decoder, cache, positions, slots };
  const embedded = decoder.embed(ids, positions);
  if (!layersFit(decoder, embedded))
    return applyNorm(decoder.weights.finalNorm, decoder.blocks(embedded, decodePass(embedded, step)));
  decodeLayers(decoder.layers, embedded, step);
  return applyNorm(decoder.weights.finalNorm, embedded);
}

function decodePass(embedded: Tensor, step: DecodeStep): Pass {
  const { decoder, cache, positions, slots } = step;
  const bias = decoder.biasUpTo(cache.length);
  const rope = decoder.ropeFor(positions, cache.length);
  const pass: Pass = {
    rope,
    training: false,
    inPlace: decoder.device !== 'cpu', // a layer on a CPU that is not taken whole gains nothing by it
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
  if (attentionFits(decoder, embedded)) pass.attendFused = (layer, qkv) => attendFused(layer, qkv, rope, step);
  return pass;
}
