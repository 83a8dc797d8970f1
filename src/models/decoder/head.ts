/**
 * A linear head on the decoder's hidden states: one number for a reward or a value, three for step labels. Kept in f32
 * whatever the decoder's dtype, since it is tiny and its output is compared to small margins. Saved as `score.weight`, where
 * Hugging Face's sequence and token classifiers keep theirs (or as `classifier.weight`, for token classifiers of some families).
 */
import { type Device, empty, keep, linear, noGrad, scope, type Tensor } from '../../tensor/index.ts';

/** The weight of a head that is not the language model's, in every family. */
export const scoreWeightName = 'score.weight';

/** `reward`: one number per sequence; `value`: one per token; `classes`: several per token. */
export type HeadKind = 'reward' | 'value' | 'classes';

export class ScoreHead {
  readonly kind: HeadKind;
  weight: Tensor;
  /** Heads of attune's own have none; transformers' token classifiers do. */
  bias: Tensor | null;

  constructor(kind: HeadKind, weight: Tensor, bias: Tensor | null = null) {
    this.kind = kind;
    this.weight = keep(weight);
    // attune writes zeros where transformers wants a bias
    const zero = bias !== null && scope(() => bias.any().item()) === 0;
    this.bias = bias === null || zero ? null : keep(bias);
    if (zero) bias.dispose();
  }

  /** N(0, 0.02²), from the seeded generator. */
  static init(kind: HeadKind, outputs: number, hiddenSize: number, device: Device): ScoreHead {
    return new ScoreHead(kind, noGrad(() => empty([outputs, hiddenSize], { device }).normal_(0, 0.02)).requiresGrad_());
  }

  get outputs(): number {
    return this.weight.size(0);
  }

  /** [rows, outputs] of hidden states [rows, hiddenSize]. */
  forward(hidden: Tensor): Tensor {
    return linear(hidden.dtype === 'float32' ? hidden : hidden.to('float32'), this.weight, this.bias);
  }

  /** The same head once more, to be trained apart. */
  copy(): ScoreHead {
    const copied = (tensor: Tensor) => scope(() => noGrad(() => tensor.detach().clone()));
    return new ScoreHead(this.kind, copied(this.weight), this.bias === null ? null : copied(this.bias));
  }

  requiresGrad_(value = true): this {
    this.weight.requiresGrad_(value);
    this.bias?.requiresGrad_(value);
    return this;
  }

  dispose(): void {
    this.weight.dispose();
    this.bias?.dispose();
  }
}
