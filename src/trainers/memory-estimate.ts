/** What a training will need before anything is loaded: parameters and bytes, from the config alone. */
import type { LoraOptions, Model } from '../models/index.ts';
import { loraConfig, loraTargets } from '../models/lora-config.ts';
import { type DType, dtypeBytes } from '../tensor/index.ts';

export interface MemoryEstimate {
  parameters: number;
  trainable: number;
  /** Weights, a second copy of them for the reference, gradients and Adam's moments, activations. */
  weightBytes: number;
  referenceBytes: number;
  optimizerBytes: number;
  activationBytes: number;
  totalBytes: number;
}

export interface EstimateOptions {
  dtype: DType;
  /** null trains all weights. */
  lora: LoraOptions | null;
  /** The reference is another model of this size. */
  secondCopy: boolean;
  /** Tokens that go through at once. */
  tokens: number;
  checkpointing: boolean;
}

/** `model` may lie on the `meta` device, which holds shapes only. */
export function estimateMemory(model: Model, options: EstimateOptions): MemoryEstimate {
  const { spec } = model.decoder;
  const size = dtypeBytes[options.dtype];
  const parameters = model.decoder.parameterCount();
  const adapters = options.lora === null ? 0 : adapterParameters(model, options.lora);
  const trainable = options.lora === null ? parameters : adapters;
  const weightBytes = parameters * size + adapters * 4;
  const referenceBytes = options.secondCopy ? parameters * size : 0;
  // gradient, two f32 moments, and an f32 master of half-precision weights
  const trainedSize = options.lora === null ? size : 4;
  const optimizerBytes = trainable * (trainedSize + 8 + (trainedSize < 4 ? 4 : 0));
  // per token and layer: about ten hidden states (norms, attention, residuals) and three of the feed-forward's width
  const perLayer = (10 * spec.hiddenSize + 3 * spec.mlp.size) * size;
  const kept = options.checkpointing ? spec.hiddenSize * size * spec.layers + perLayer : perLayer * spec.layers;
  const activationBytes = options.tokens * kept;
  return {
    parameters,
    trainable,
    weightBytes,
    referenceBytes,
    optimizerBytes,
    activationBytes,
    totalBytes: weightBytes + referenceBytes + optimizerBytes + activationBytes,
  };
}

/** Also checks the names: one that matches no module is an error that lists those there are. */
function adapterParameters(model: Model, options: LoraOptions): number {
  const config = loraConfig(model, options);
  return loraTargets(model, config).reduce((sum, { projection, part, r }) => {
    const outputs = projection.parts[part]?.outputs ?? 0;
    return sum + r * (projection.inputs + outputs) + (config.useDora ? outputs : 0);
  }, 0);
}
