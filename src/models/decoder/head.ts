/**
 * A linear head on the decoder's hidden states: one number for a reward or a value, three for step labels. It stays in f32
 * whatever the decoder's dtype: it is tiny, and small differences between its outputs matter. It is saved as `score.weight`,
 * as Hugging Face's sequence and token classifiers are (`classifier.weight` for the token classifiers of some families).
 */
import { type Device, empty, keep, linear, noGrad, scope, type Tensor } from '../../tensor/index.ts';

/** The name of a score head's weight, in every family. */
export const scoreWeightName = 'score.weight';

/** `reward`: one number per sequence; `value`: one per token; `classes`: several per token. */
export type HeadKind = 'reward' | 'value' | 'classes';

/** A linear head that turns hidden states into a reward, a value or class scores. */
export class ScoreHead {
  readonly kind: HeadKind;
  weight: Tensor;
  /** transformers' token classifiers have a bias; heads made by attune have none. */
  bias: Tensor | null;

  constructor(kind: HeadKind, weight: Tensor, bias: Tensor | null = null) {
    this.kind = kind;
    this.weight = keep(weight);
    // attune writes zeros where transformers requires a bias, and reads them as no bias.
    const zero = bias !== null && scope(() => bias.any().item()) === 0;
    this.bias = bias === null || zero ? null : keep(bias);
    if (zero) bias.dispose();
  }

  /** A new head with weights from N(0, 0.02²). */
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

  /** An independent copy, to be trained separately. */
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
