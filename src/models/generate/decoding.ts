/**
 * The two forward passes of generation: prefill (packed prompts into the cache) and the general path of decoding (one
 * token per row). Both run the decoder's own blocks, so they work for every family, adapter and quantised weight; only
 * the attention differs. If native code supports the whole model, decoding uses a plan instead (plan.ts).
 */
import { aten, type Device, integers, scope, type Tensor } from '../../tensor/index.ts';
import { packSequences } from '../decoder/batch.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Layer, Pass } from '../decoder/layer.ts';
import { applyNorm } from '../decoder/norm.ts';
import { BLOCK, blocksFor, type KvCache } from './cache/cache.ts';
import type { StepRows } from './plan.ts';

/** Most tokens read in one pass: bounds its memory. */
export const PREFILL_TOKENS = 16384;

/** A prompt and the slot that it is read into. */
export interface PrefillItem {
  prompt: ArrayLike<number>;
  slot: number;
}

/** Runs the prompts, fills their slots, and returns the hidden state of each prompt's last token. */
export function prefill(decoder: Decoder, cache: KvCache, items: readonly PrefillItem[]): Tensor {
  const device = decoder.device;
  const batch = packSequences(
    items.map((item) => item.prompt),
    device,
  );
  const places = new Int32Array(batch.starts.at(-1) as number);
  let at = 0;
  for (const { prompt, slot } of items)
    for (let token = 0; token < prompt.length; token++) places[at++] = cache.place(slot, token);
  const target = integers(places, { device });
  const pass = decoder.pass(batch);
  const { attend } = pass;
  const filling: Pass = {
    ...pass,
    attend: (layer, q, k, v) => {
      cache.write(layer, target, k, v);
      return attend(layer, q, k, v);
    },
  };
  const last = integers(
    batch.starts.slice(1).map((end) => end - 1),
    { device },
  );
  const { layers } = decoder;
  const x = decoder.blocks(decoder.embed(batch.ids, batch.positions), filling, layers.slice(0, -1));
  // In the last block only the prompts' last tokens need a result; the others leave their keys and values.
  return applyNorm(decoder.weights.finalNorm, decoder.blocks(x, { ...filling, only: last }, layers.slice(-1)));
}

/**
 * A prompt is read into its first row's slot. The other rows share its full blocks, and get a copy of the last, partial
 * one.
 */
export function copyPrompts(
  cache: KvCache,
  items: readonly (PrefillItem & { rows: readonly { slot: number }[] })[],
): void {
  const partial = items.filter(({ prompt }) => prompt.length % BLOCK > 0);
  const last = (slot: number, { prompt }: PrefillItem) => cache.table(slot)[blocksFor(prompt.length) - 1] as number;
  const copies = partial.flatMap((item) =>
    item.rows.slice(1).map((row) => [last(item.slot, item), last(row.slot, item)]),
  );
  cache.copyBlocks(
    copies.map(([from]) => from as number),
    copies.map(([, to]) => to as number),
  );
}

/** A prompt whose first tokens are already in its slot. */
export interface ContinuedPrompt {
  prompt: ArrayLike<number>;
  slot: number;
  /** How many of its tokens are in the slot. */
  from: number;
}

/**
 * Tokens of prompts as rows of one pass, each with its position in the sequence, its slot, and its place in the cache.
 */
export interface PromptTokens<Values> {
  ids: Values;
  positions: Values;
  slots: Values;
  targets: Values;
}

/** The prompts' tokens that are not in the cache, and which of them are the prompts' last. */
export function tokensLeft(
  items: readonly ContinuedPrompt[],
  cache: KvCache,
): PromptTokens<number[]> & { last: number[] } {
  const tokens = { ids: [], positions: [], slots: [], targets: [], last: [] } as ReturnType<typeof tokensLeft>;
  for (const { prompt, slot, from } of items) {
    for (let place = from; place < prompt.length; place++) {
      tokens.ids.push(prompt[place] as number);
      tokens.positions.push(place);
      tokens.slots.push(slot);
      tokens.targets.push(cache.place(slot, place));
    }
    tokens.last.push(tokens.ids.length - 1);
  }
  return tokens;
}

/**
 * Computes the rest of prompts whose beginnings are in the cache, and returns the hidden state of each prompt's last
 * token.
 */
export function continuePrompts(decoder: Decoder, cache: KvCache, items: readonly ContinuedPrompt[]): Tensor {
  const { last, ...tokens } = tokensLeft(items, cache);
  return readTokens(decoder, cache, asTensors(tokens, decoder.device), integers(last, { device: decoder.device }));
}

/** The same for the keys and values only, with at most `most` tokens per pass. */
export function fillSlots(decoder: Decoder, cache: KvCache, items: readonly ContinuedPrompt[], most: number): void {
  const { ids, positions, slots, targets } = tokensLeft(items, cache);
  for (let at = 0; at < ids.length; at += most) {
    const part = (values: readonly number[]) => values.slice(at, at + most);
    const tokens = { ids: part(ids), positions: part(positions), slots: part(slots), targets: part(targets) };
    scope(
      () =>
        void readTokens(decoder, cache, asTensors(tokens, decoder.device), integers([0], { device: decoder.device })),
    );
  }
}

const asTensors = (
  { ids, positions, slots, targets }: PromptTokens<number[]>,
  device: Device,
): PromptTokens<Tensor> => ({
  ids: integers(ids, { device }),
  positions: integers(positions, { device }),
  slots: integers(slots, { device }),
  targets: integers(targets, { device }),
});

/**
 * Runs tokens of prompts and returns the hidden states of those at `last`. All tokens go through a block at once, each
 * as its own row: all keys and values are written first, and a row's attention ends at its own position.
 */
export function readTokens(decoder: Decoder, cache: KvCache, tokens: PromptTokens<Tensor>, last: Tensor): Tensor {
  const { ids, positions, slots, targets } = tokens;
  const { attend, rope, training } = generalPass(decoder, cache, positions, slots);
  const pass: Pass = {
    rope,
    training,
    attend: (layer, q, k, v) => {
      cache.write(layer, targets, k, v);
      return attend(layer, q, k, v);
    },
  };
  const { layers } = decoder;
  const embedded = decoder.embed(ids, positions);
  if (attentionFits(decoder, embedded, 'attune::prompt_fused_fits'))
    pass.attendFused = fusedAttention('attune::prompt_fused', decoder, cache, tokens, pass.rope);
  const early = { ...pass, inPlace: decoder.device !== 'cpu' }; // in place gains nothing on the CPU
  const x = decoder.blocks(embedded, early, layers.slice(0, -1));
  return applyNorm(decoder.weights.finalNorm, decoder.blocks(x, { ...pass, only: last }, layers.slice(-1)));
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
        cache.tables,
        slots,
        positions,
        decoder.attentionScale(layer),
        decoder.spec.attention.windows[layer] ?? 0,
        bias,
        cache.keyScales[layer] ?? null,
        cache.valueScales[layer] ?? null,
      ),
  };
}

function decodePass(decoder: Decoder, cache: KvCache, rows: StepRows, embedded: Tensor): Pass {
  // Working in place gains nothing on the CPU.
  const pass = { ...generalPass(decoder, cache, rows.positions, rows.slots), inPlace: decoder.device !== 'cpu' };
  if (!attentionFits(decoder, embedded, 'attune::decode_fused_fits')) return pass;
  return { ...pass, attendFused: fusedAttention('attune::decode_fused', decoder, cache, rows, pass.rope) };
}

/** q/k norm, rope, cache write and attention of rows in one operator. */
function fusedAttention(
  operator: 'attune::decode_fused' | 'attune::prompt_fused',
  decoder: Decoder,
  cache: KvCache,
  { slots, positions }: { slots: Tensor; positions: Tensor },
  rope: Pass['rope'],
): NonNullable<Pass['attendFused']> {
  const { attention } = decoder.spec;
  return ({ index, weights: { qNorm, kNorm } }: Layer, qkv: Tensor): Tensor =>
    aten(
      operator,
      qkv,
      qNorm?.weight ?? null,
      kNorm?.weight ?? null,
      qNorm?.eps ?? 0,
      rope?.cos ?? null,
      rope?.sin ?? null,
      rope?.interleaved ?? false,
      cache.keys[index],
      cache.values[index],
      cache.tables,
      slots,
      positions,
      attention.heads,
      decoder.attentionScale(index),
      attention.windows[index] ?? 0,
      cache.keyScales[index] ?? null,
      cache.valueScales[index] ?? null,
    );
}

/**
 * Whether a fused operator supports this decoder's heads; `fits` says for which devices, dtypes and sizes there is one.
 */
function attentionFits(
  decoder: Decoder,
  x: Tensor,
  fits: 'attune::decode_fused_fits' | 'attune::prompt_fused_fits',
): boolean {
  const { attention, positions } = decoder.spec;
  const plain = attention.layout === 'blocked' && positions.kind !== 'alibi' && attention.qkNorm?.over !== 'all';
  return plain && aten<boolean>(fits, x, attention.headDim);
}
