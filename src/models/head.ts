/**
 * A linear head on the decoder's hidden states: one number for a reward or a value, three for step labels. Kept in f32
 * whatever the decoder's dtype, since it is tiny and its output is compared to small margins. Saved as `score.weight`, where
 * Hugging Face's sequence and token classifiers keep theirs.
 */
import { type Device, empty, keep, linear, noGrad, type Tensor } from '../tensor/index.ts';

/** `reward`: one number per sequence; `value`: one per token; `classes`: several per token. */
export type HeadKind = 'reward' | 'value' | 'classes';

export class ScoreHead {
  readonly kind: HeadKind;
  weight: Tensor;

  constructor(kind: HeadKind, weight: Tensor) {
    this.kind = kind;
    this.weight = keep(weight);
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
    return linear(hidden.dtype === 'float32' ? hidden : hidden.to('float32'), this.weight);
  }

  dispose(): void {
    this.weight.dispose();
  }
}
