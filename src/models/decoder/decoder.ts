/**
 * A decoder-only transformer built from a spec (families/spec.ts): packed tokens in, hidden states out.
 *
 *     const hidden = decoder.forward(packSequences([[1, 2, 3]]));   // [3, hiddenSize], after the final norm
 *     const logits = decoder.logits(hidden);
 */
import { AttuneError, UserError } from '../../errors.ts';
import type { QuantType } from '../../nn/index.ts';
import {
  cat,
  type Device,
  type DType,
  dropout,
  dtypeBytes,
  embedding,
  type HeadRows,
  keep,
  linear,
  linearLogprob,
  ones,
  scope,
  type Tensor,
  tensor,
} from '../../tensor/index.ts';
import type { DecoderSpec } from '../families/spec.ts';
import { alibiBias } from './alibi.ts';
import { longestWithPrefix, packedAttention } from './attention.ts';
import type { PackedBatch } from './batch.ts';
import { backwardByBlocks, type PassWatcher } from './checkpointing.ts';
import type { Layer, Pass } from './layer.ts';
import { applyNorm, type Norm, normParameters } from './norm.ts';
import type { Projection } from './projection.ts';
import { ropeDependsOnLength } from './rope.ts';
import { decodeRopeTable, packedRopeTable, ropeTableLength } from './rope-table.ts';

export interface DecoderWeights {
  embedding: { name: string; weight: Tensor };
  positions: { name: string; weight: Tensor } | null;
  embeddingNorm: Norm | null;
  layers: Layer[];
  finalNorm: Norm;
  /** Whether there is a language-model head; a reward model's checkpoint may have none. */
  lm: boolean;
  /** The language-model head; null if it is the embedding's weight without a bias. */
  head: { name: string; weight: Tensor | null; bias: Tensor | null } | null;
}

/** A weight under its checkpoint name: its tensor (a view if several weights share one matrix) and its gradient. */
export interface NamedWeight {
  name: string;
  tensor: () => Tensor;
  grad: () => Tensor | null;
}

/** A decoder-only transformer of any supported family: forward, backward with checkpointing, logits and log-probs. */
export class Decoder {
  readonly spec: DecoderSpec;
  readonly weights: DecoderWeights;
  /** Whether dropout is active (if the config has any). */
  training = false;
  /** @internal Notified of every backward pass, block by block; null if nobody watches. */
  watcher: PassWatcher | null = null;
  /** @internal Whether its weights are there: weights sharded over several processes are whole only at times. */
  residence: { readonly isWhole: boolean; makeWhole(): Promise<boolean> } | null = null;
  /**
   * @internal Changes when adapters are activated, removed or merged. A captured CUDA graph or a decode plan is valid
   * for one value only.
   */
  arrangement = 0;
  #newestArrangement = 0;
  #rope: { cos: Tensor; sin: Tensor; count: number } | null = null;
  #bias: Tensor | null = null;

  constructor(spec: DecoderSpec, weights: DecoderWeights) {
    this.spec = spec;
    this.weights = weights;
  }

  get device(): Device {
    return this.weights.embedding.weight.device;
  }
  get dtype(): DType {
    return this.weights.embedding.weight.dtype;
  }
  get layers(): readonly Layer[] {
    return this.weights.layers;
  }

  /**
   * @internal The longest sequence, in tokens, whose prompt may be shared in a batch (`packShared`); 0 if none may.
   * Attention must support prefixes, and a token's result must not depend on the length of its sequence.
   */
  get longestShared(): number {
    const { positions, attention } = this.spec;
    if (this.training && attention.dropout > 0) return 0;
    if (positions.kind === 'rope' && ropeDependsOnLength(positions)) return 0;
    return longestWithPrefix({ ...attention, hasBias: positions.kind === 'alibi' }, this.device, this.dtype);
  }

  /** The final hidden states of every token, [total, hiddenSize]. */
  forward(batch: PackedBatch): Tensor {
    const x = this.blocks(this.embed(batch.ids, batch.positions), this.pass(batch));
    return applyNorm(this.weights.finalNorm, x);
  }

  /** @internal The final hidden states of the tokens at `rows` only: the last block does not compute the others. */
  forwardAt(batch: PackedBatch, rows: Tensor): Tensor {
    const pass = this.pass(batch);
    const inPlace = this.layers[0]?.weights.down.rounds(batch.ids.size(0)) ?? false; // products then add to the sum themselves
    const x = this.blocks(this.embed(batch.ids, batch.positions), { ...pass, inPlace }, this.layers.slice(0, -1));
    return applyNorm(this.weights.finalNorm, this.blocks(x, { ...pass, only: rows }, this.layers.slice(-1)));
  }

  /** @internal Runs `x` through the blocks. Each block's intermediate tensors are freed, except what backward needs. */
  blocks(x: Tensor, pass: Pass, layers = this.layers): Tensor {
    return layers.reduce((input, layer) => scope(() => layer.forward(input, pass)), x);
  }

  /**
   * Runs forward, `loss` on the final hidden states, and backward. `checkpointing` takes less memory and more time
   * (checkpointing.ts).
   */
  backward(batch: PackedBatch, loss: (hidden: Tensor) => Tensor, options: { checkpointing?: boolean } = {}): Tensor {
    const { watcher } = this;
    const recompute = options.checkpointing || Boolean(watcher?.recomputes);
    if (!recompute && watcher === null) {
      const value = loss(this.forward(batch));
      value.backward();
      return value.detach();
    }
    const blocks = {
      pass: this.pass(batch),
      embedded: this.embed(batch.ids, batch.positions),
      layers: this.layers,
      finalNorm: this.weights.finalNorm,
      device: this.device,
      random: this.training && this.#hasDropout(),
      recompute,
      watcher,
    };
    return backwardByBlocks(blocks, loss);
  }

  #hasDropout(): boolean {
    const { dropout: rates, attention } = this.spec;
    for (const { adapter } of this.projections()) if (adapter?.random) return true;
    return Math.max(rates.residual, rates.embedding, rates.attentionOutput ?? 0, attention.dropout) > 0;
  }

  /** @internal Token (and learned position) embeddings: what enters the first block. */
  embed(ids: Tensor, positions: Tensor): Tensor {
    const { embedding: table, positions: learned, embeddingNorm } = this.weights;
    if (this.residence?.isWhole === false && this.watcher === null)
      throw new AttuneError(
        'The weights are dealt over the ranks at this moment (--shard full): no rank has them whole.',
      );
    let x = embedding(table.weight, ids);
    if (learned !== null) x = x.add(embedding(learned.weight, positions));
    if (embeddingNorm !== null) x = applyNorm(embeddingNorm, x);
    const p = this.spec.dropout.embedding;
    return this.training && p > 0 ? dropout(x, p, true) : x;
  }

  /** @internal What the layers share for a packed batch. */
  pass(batch: PackedBatch): Pass {
    this.checkLength(batch.longest);
    const bias = this.biasUpTo(batch.longest);
    return {
      rope: this.#ropeOf(batch),
      training: this.training,
      attend: (layer, q, k, v) =>
        packedAttention({
          q,
          k,
          v,
          batch,
          scale: this.attentionScale(layer),
          window: this.spec.attention.windows[layer] ?? null,
          bias,
          dropout: this.training ? this.spec.attention.dropout : 0,
        }),
    };
  }

  /** @internal The factor of the attention scores of one layer. */
  attentionScale(layer: number): number {
    const { scale, scaleByLayer } = this.spec.attention;
    return scaleByLayer ? scale / (layer + 1) : scale;
  }

  /** @internal Refuses sequences that are longer than a table of learned positions. */
  checkLength(tokens: number): void {
    if (this.spec.positions.kind === 'learned' && tokens > this.spec.positions.count) {
      throw new UserError(
        `A sequence of ${tokens} tokens is longer than the ${this.spec.positions.count} positions this model has.`,
      );
    }
  }

  /** Cosines and sines for a packed batch. With dynamic scaling each sequence has its own frequencies, by its own length. */
  #ropeOf(batch: PackedBatch): Pass['rope'] {
    const { positions } = this.spec;
    if (positions.kind !== 'rope' || !ropeDependsOnLength(positions))
      return this.ropeFor(batch.positions, batch.longest);
    const { cos, sin } = packedRopeTable(positions, batch.starts);
    const shape = [batch.ids.size(0), positions.rotaryDim / 2];
    const onDevice = (values: Float32Array) => tensor(values, { shape, device: this.device });
    return { cos: onDevice(cos), sin: onDevice(sin), interleaved: positions.interleaved };
  }

  /** @internal cos and sin for tokens at `positions`, all below `count`. */
  ropeFor(positions: Tensor, count: number): Pass['rope'] {
    const { positions: spec } = this.spec;
    if (spec.kind !== 'rope') return null;
    const table = this.ropeUpTo(count);
    return {
      cos: table.cos.indexSelect(0, positions),
      sin: table.sin.indexSelect(0, positions),
      interleaved: spec.interleaved,
    };
  }

  /** @internal The rope tables for at least `count` positions, made when first needed and grown by doubling. */
  ropeUpTo(count: number): { cos: Tensor; sin: Tensor; count: number } {
    const { positions: spec, maxPositions } = this.spec;
    if (spec.kind !== 'rope') throw new UserError('This model has no rotary positions.');
    if (this.#rope !== null && this.#rope.count >= count && this.#rope.cos.device === this.device) return this.#rope;
    const grown = ropeTableLength(count, maxPositions);
    const { cos, sin } = decodeRopeTable(spec, grown);
    const half = spec.rotaryDim / 2;
    this.#rope?.cos.dispose();
    this.#rope?.sin.dispose();
    const onDevice = (values: Float32Array) => keep(tensor(values, { shape: [grown, half], device: this.device }));
    this.#rope = { cos: onDevice(cos), sin: onDevice(sin), count: grown };
    return this.#rope;
  }

  /** @internal ALiBi's bias for keys at positions below `count`, [heads, ≥ count]; null for other kinds of positions. */
  biasUpTo(count: number): Tensor | null {
    const { positions, attention } = this.spec;
    if (positions.kind !== 'alibi') return null;
    if (this.#bias !== null && this.#bias.size(1) >= count && this.#bias.device === this.device) return this.#bias;
    const grown = 2 ** Math.ceil(Math.log2(Math.max(count, 256)));
    this.#bias?.dispose();
    this.#bias = keep(
      tensor(alibiBias(positions, attention.heads, grown), { shape: [attention.heads, grown], device: this.device }),
    );
    return this.#bias;
  }

  /** The matrix that turns hidden states into logits. */
  get headWeight(): Tensor {
    if (!this.weights.lm)
      throw new UserError(
        'This checkpoint has no language-model head (it is a reward model): it can score text, not write it.',
      );
    return this.weights.head?.weight ?? this.weights.embedding.weight;
  }

  /** Next-token logits, [rows, vocabulary]. */
  logits(hidden: Tensor): Tensor {
    return linear(hidden, this.headWeight, this.weights.head?.bias ?? null);
  }

  /** log π(target) and entropy for rows of hidden states, without holding all logits when there are many. */
  logprobs(hidden: Tensor, targets: Tensor, temperature = 1): { logp: Tensor; entropy: Tensor } {
    const head = this.headRows(hidden);
    return linearLogprob(head.hidden, head.weight, targets, { temperature });
  }

  /** @internal The operands whose product is the logits of some rows. */
  headRows(hidden: Tensor): HeadRows {
    const bias = this.weights.head?.bias ?? null;
    if (bias === null) return { hidden, weight: this.headWeight };
    // GPT-J's head has a bias: it becomes the weight of an additional input that is always 1.
    const one = ones([hidden.size(0), 1], { dtype: hidden.dtype, device: hidden.device });
    return { hidden: cat([hidden, one], 1), weight: cat([this.headWeight, bias.unsqueeze(1)], 1) };
  }

  /** @internal Every matrix of the blocks with its adapter. */
  /** @internal A number that no arrangement of this decoder had before. */
  newArrangement(): number {
    this.#newestArrangement++;
    return this.#newestArrangement;
  }

  *projections(): Iterable<Projection> {
    for (const layer of this.layers) yield* layer.projections;
  }

  /** Every parameter once, under a stable name; a fused matrix is one parameter. */
  *parameters(): Iterable<[string, Tensor]> {
    const { embedding: table, positions, embeddingNorm, finalNorm, head } = this.weights;
    yield [table.name, table.weight];
    if (positions !== null) yield [positions.name, positions.weight];
    if (embeddingNorm !== null) yield* normParameters(embeddingNorm);
    for (const layer of this.layers) yield* layer.parameters();
    yield* normParameters(finalNorm);
    if (head !== null) {
      if (head.weight !== null) yield [`${head.name}.weight`, head.weight];
      if (head.bias !== null) yield [`${head.name}.bias`, head.bias];
    }
  }

  /** Every weight under its checkpoint name; a fused matrix gives its parts one by one. */
  *namedWeights(): Iterable<NamedWeight> {
    const joined = new Map<string, [Projection, 'weight' | 'bias']>();
    for (const projection of this.projections()) {
      const name = projection.parts.map((part) => part.name).join('+');
      joined.set(`${name}.weight`, [projection, 'weight']).set(`${name}.bias`, [projection, 'bias']);
    }
    for (const [name, parameter] of this.parameters()) {
      const found = joined.get(name);
      if (found === undefined) {
        yield { name, tensor: () => parameter, grad: () => parameter.grad };
        continue;
      }
      const [projection, which] = found;
      for (const [i, part] of projection.parts.entries()) {
        yield {
          name: `${part.name}.${which}`,
          tensor: () => (which === 'weight' ? projection.weightOf(i) : (projection.biasOf(i) as Tensor)),
          grad: () => projection.gradOf(i, which),
        };
      }
    }
  }

  requiresGrad_(value = true): this {
    for (const [, parameter] of this.parameters()) parameter.requiresGrad_(value);
    return this;
  }

  train(value = true): this {
    this.training = value;
    return this;
  }

  /** How the blocks' matrices are quantised; null if they are plain tensors. */
  get quantType(): QuantType | null {
    for (const { quantised } of this.projections()) if (quantised !== null) return quantised.type;
    return null;
  }

  /** @internal Every tensor of the decoder: its parameters, and the tensors that quantised matrices consist of. */
  *tensors(): Iterable<[string, Tensor]> {
    yield* this.parameters();
    for (const { quantised, parts } of this.projections()) {
      const name = parts.map((part) => part.name).join('+');
      for (const [part, tensor] of quantised?.tensors() ?? []) yield [`${name}.${quantised?.type}.${part}`, tensor];
    }
  }

  parameterCount(): number {
    let count = 0;
    for (const [, parameter] of this.parameters()) count += parameter.numel;
    for (const { quantised } of this.projections()) if (quantised) count += quantised.outputs * quantised.inputs;
    return count;
  }

  /** Bytes of its weights. */
  get bytes(): number {
    let sum = 0;
    for (const [, tensor] of this.tensors()) sum += tensor.numel * dtypeBytes[tensor.dtype];
    return sum;
  }

  dispose(): void {
    for (const [, tensor] of this.tensors()) tensor.dispose();
    this.disposeTables();
  }
  /** @internal Frees the position tables but not the weights, which another decoder may share. */
  disposeTables(): void {
    this.#rope?.cos.dispose();
    this.#rope?.sin.dispose();
    this.#bias?.dispose();
    this.#rope = null;
    this.#bias = null;
  }
}
