/**
 * One decoder block; its spec says where its norms are and what its MLP is. Training, scoring, prefill and decoding all
 * use it; only `Pass.attend`, which gets q, k and v, differs.
 */
import { aten, dropout, gelu, type Tensor } from '../../tensor/index.ts';
import type { DecoderSpec, MlpSpec } from '../families/spec.ts';
import { addNorm, applyNorm, type Norm, normParameters } from './norm.ts';
import type { Projection } from './projection.ts';

/** What all layers of one forward share. */
export interface Pass {
  /** cos and sin of the rotary angles, [tokens, rotaryDim / 2]; null for other kinds of positions. */
  rope: { cos: Tensor; sin: Tensor; interleaved: boolean } | null;
  training: boolean;
  /** The result may overwrite the block's input: nothing else uses it, and no gradient is recorded. */
  inPlace?: boolean;
  /**
   * Compute the result of these tokens only (not with `inPlace`). For the others a block computes only keys and values.
   */
  only?: Tensor;
  /** [tokens, heads, headDim] from q of that shape and k, v of [tokens, kvHeads, headDim]. */
  attend: (layer: number, q: Tensor, k: Tensor, v: Tensor) => Tensor;
  /** Attention straight from the fused projection, if one kernel does it all (decoding). */
  attendFused?: (layer: Layer, qkv: Tensor) => Tensor;
}

export interface LayerWeights {
  attentionNorm: Norm | null;
  mlpNorm: Norm | null;
  qkv: Projection;
  qNorm: Norm | null;
  kNorm: Norm | null;
  out: Projection;
  up: Projection;
  down: Projection;
}

export class Layer {
  readonly index: number;
  readonly spec: DecoderSpec;
  readonly weights: LayerWeights;

  constructor(index: number, spec: DecoderSpec, weights: LayerWeights) {
    this.index = index;
    this.spec = spec;
    this.weights = weights;
  }

  get norms(): Norm[] {
    const { attentionNorm, mlpNorm, qNorm, kNorm } = this.weights;
    return [attentionNorm, mlpNorm, qNorm, kNorm].filter((norm) => norm !== null);
  }
  get projections(): Projection[] {
    const { qkv, out, up, down } = this.weights;
    return [qkv, out, up, down];
  }

  *parameters(): Iterable<[string, Tensor]> {
    for (const norm of this.norms) yield* normParameters(norm);
    for (const projection of this.projections) {
      const name = projection.parts.map((part) => part.name).join('+');
      if (projection.weight !== null) yield [`${name}.weight`, projection.weight];
      if (projection.bias !== null) yield [`${name}.bias`, projection.bias];
    }
  }

  /** Whether any of its parameters is trained, adapters included. */
  isTrained(): boolean {
    if (this.projections.some(({ adapter }) => adapter?.isTrained())) return true;
    for (const [, parameter] of this.parameters()) if (parameter.requiresGrad) return true;
    return false;
  }

  forward(input: Tensor, pass: Pass): Tensor {
    const { spec } = this;
    const { attentionNorm, mlpNorm, out } = this.weights;
    if (pass.inPlace && spec.normPlace === 'pre' && spec.parallel === false) return this.#forward_(input, pass);
    const wanted = (rows: Tensor) => (pass.only === undefined ? rows : rows.indexSelect(0, pass.only));
    const after = spec.normPlace === 'post';
    const [residual, normedInput] = after ? [input, input] : addNorm(attentionNorm, input, null);
    const attention = out.forward(wanted(this.#attended(normedInput, pass)));
    const attended = this.#drop(attention, pass, spec.dropout.attentionOutput);
    const x = wanted(residual);
    const normed = wanted(normedInput);
    if (spec.parallel !== false) {
      const second = spec.parallel === 'two-norms' ? normOr(mlpNorm, x) : normed;
      return x.add(attended).add(this.#drop(this.#mlp(second), pass));
    }
    const normedResidual = spec.normPlace === 'pre-residual';
    const [middle, inner] = addNorm(
      after ? null : mlpNorm,
      normedResidual ? normed : x,
      after ? normOr(attentionNorm, attended) : attended,
    );
    const result = this.#drop(this.#mlp(inner), pass);
    return (normedResidual ? inner : middle).add(after ? normOr(mlpNorm, result) : result);
  }

  /** The usual block, x += attention(norm x), then x += mlp(norm x), both in place. */
  #forward_(x: Tensor, pass: Pass): Tensor {
    const { attentionNorm, mlpNorm, out, up, down } = this.weights;
    out.addTo_(x, this.#attended(normOr(attentionNorm, x), pass));
    return down.addTo_(x, activated(up, normOr(mlpNorm, x), this.spec.mlp));
  }

  /** Attention's result before the output projection, [tokens, heads × headDim]. */
  #attended(x: Tensor, pass: Pass): Tensor {
    const { heads, headDim } = this.spec.attention;
    const qkv = this.weights.qkv.forward(x);
    const attended = pass.attendFused === undefined ? this.#attend(qkv, pass) : pass.attendFused(this, qkv);
    return attended.reshape(x.size(0), heads * headDim);
  }

  #attend(qkv: Tensor, pass: Pass): Tensor {
    const [q, k, v] = this.#splitsPlainly() ? this.#heads(qkv, pass) : this.#splitAndTurn(qkv, pass);
    return pass.attend(this.index, q, k, v);
  }

  /** Whether `attune::split_heads` supports the layout and the norms. */
  #splitsPlainly(): boolean {
    const { layout, qkNorm } = this.spec.attention;
    const { qNorm, kNorm } = this.weights;
    if (layout === 'grouped') return false;
    if (qNorm === null || kNorm === null) return true;
    return qkNorm?.over === 'head' && qNorm.kind === 'rms' && kNorm.kind === 'rms' && qNorm.eps === kNorm.eps;
  }

  #heads(qkv: Tensor, { rope }: Pass): [Tensor, Tensor, Tensor] {
    const { heads, kvHeads } = this.spec.attention;
    const { qNorm, kNorm } = this.weights;
    const [q, k] = qNorm === null || kNorm === null ? [null, null] : [qNorm.weight, kNorm.weight];
    const angles = rope === null ? [null, null, false] : [rope.cos, rope.sin, rope.interleaved];
    return aten('attune::split_heads', qkv, heads, kvHeads, q, k, qNorm?.eps ?? 0, ...angles);
  }

  #splitAndTurn(qkv: Tensor, pass: Pass): [Tensor, Tensor, Tensor] {
    let [q, k, v] = this.#split(qkv);
    [q, k] = this.#normQk(q, k);
    if (pass.rope !== null) {
      const { cos, sin, interleaved } = pass.rope;
      q = aten('attune::rope', q, cos, sin, interleaved);
      k = aten('attune::rope', k, cos, sin, interleaved);
    }
    return [q, k, v];
  }

  /** The fused projection's output as q, k and v of [tokens, heads, headDim]. */
  #split(fused: Tensor): [Tensor, Tensor, Tensor] {
    const { heads, kvHeads, headDim, layout } = this.spec.attention;
    const tokens = fused.size(0);
    if (layout === 'grouped') {
      const share = heads / kvHeads;
      const groups = fused.view(tokens, kvHeads, share + 2, headDim);
      return [
        groups.narrow(2, 0, share).reshape(tokens, heads, headDim),
        groups.select(2, share),
        groups.select(2, share + 1),
      ];
    }
    const [q, k, v] = fused.split([heads * headDim, kvHeads * headDim, kvHeads * headDim], 1) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    return [q.view(tokens, heads, headDim), k.view(tokens, kvHeads, headDim), v.view(tokens, kvHeads, headDim)];
  }

  #normQk(q: Tensor, k: Tensor): [Tensor, Tensor] {
    const { qNorm, kNorm } = this.weights;
    if (qNorm === null || kNorm === null) return [q, k];
    if (this.spec.attention.qkNorm?.over === 'head') return [applyNorm(qNorm, q), applyNorm(kNorm, k)];
    return [applyNorm(qNorm, q.flatten(1)).view(...q.shape), applyNorm(kNorm, k.flatten(1)).view(...k.shape)];
  }

  #mlp(x: Tensor): Tensor {
    return this.weights.down.forward(activated(this.weights.up, x, this.spec.mlp));
  }

  #drop(x: Tensor, pass: Pass, p = this.spec.dropout.residual): Tensor {
    return pass.training && p > 0 ? dropout(x, p, true) : x;
  }
}

function normOr(norm: Norm | null, x: Tensor): Tensor {
  return norm === null ? x : applyNorm(norm, x);
}

/** act(gate)·up of the fused projection [gate, up], or act of a plain one. */
function activated(projection: Projection, x: Tensor, mlp: MlpSpec): Tensor {
  if (!mlp.gated) return activation(projection.forward(x), mlp.activation);
  if (mlp.activation === 'silu') return projection.gated(x);
  const [gate, up] = projection.forward(x).chunk(2, 1) as [Tensor, Tensor];
  return activation(gate, mlp.activation).mul(up);
}

function activation(x: Tensor, kind: MlpSpec['activation']): Tensor {
  switch (kind) {
    case 'silu':
      return x.silu();
    case 'gelu':
      return gelu(x);
    case 'gelu_tanh':
      return gelu(x, 'tanh');
    case 'relu':
      return x.relu();
    case 'relu2':
      return x.relu().square();
    case 'quick_gelu':
      return x.mul(x.mul(1.702).sigmoid());
    case 'tanh':
      return x.tanh();
  }
}
