/**
 * The memory that loading and training a model takes, from its shapes alone. With a model on the `meta` device nothing is read
 * or allocated.
 *
 *     using shapes = initModel(config, { device: 'meta' });
 *     trainingMemory(shapes, { dtype: 'bfloat16', tokens: 8192, checkpointing: true }).totalBytes;
 */
import type { QuantType } from '../../nn/index.ts';
import { quantisedBytes } from '../../nn/quantised.ts';
import { keepsLogits, logprobChunk } from '../../tensor/functional.ts';
import { type Device, type DType, defaultDevice, dtypeBytes } from '../../tensor/index.ts';
import type { DecoderSpec } from '../families/spec.ts';
import { type LoraOptions, loraConfig, loraTargets } from '../lora/config.ts';
import type { Model } from '../model.ts';

/** How a model would be trained: dtype, adapters, tokens at once. */
export interface MemoryOptions {
  dtype: DType;
  /** Trains adapters on a frozen base; without it all weights are trained. */
  lora?: LoraOptions | null;
  /** How the matrices of an adapter's base are quantised; not at all by default. */
  quantType?: QuantType;
  /** The device it trains on; this machine's best by default. */
  device?: Device;
  /** Whether the reference is a second model of this size. */
  secondCopy?: boolean;
  /** How the reference's blocks' matrices are quantised. */
  referenceQuantType?: QuantType;
  /** Tokens of a micro-batch. */
  tokens: number;
  /** Gradient checkpointing: only the blocks' inputs are kept, and the activations of one block at a time. */
  checkpointing?: boolean;
}

/** Estimated bytes of a training run by part. */
export interface MemoryEstimate {
  parameters: number;
  trainable: number;
  /** Weights, adapters included. */
  weightBytes: number;
  referenceBytes: number;
  /** Gradients, Adam's two f32 moments, and f32 masters of half-precision weights. */
  optimizerBytes: number;
  /**
   * What backward needs, plus the larger of two temporary parts: the copies of the loss and those of the optimiser's
   * step.
   */
  activationBytes: number;
  totalBytes: number;
}

/** Estimates the memory that training takes, from the shapes alone. */
export function trainingMemory(model: Model, options: MemoryOptions): MemoryEstimate {
  const { dtype, lora = null, tokens, checkpointing = false, secondCopy = false } = options;
  const size = dtypeBytes[dtype];
  const parameters = model.decoder.parameterCount();
  const adapters = lora === null ? null : adapterShape(model, lora);
  const trainable = adapters?.parameters ?? parameters;
  const trainedSize = adapters === null ? size : dtypeBytes[lora?.dtype ?? 'float32'];
  const halved = trainedSize < 4;
  const heldBytes = weightBytes(model, dtype, options.quantType) + (adapters?.parameters ?? 0) * trainedSize;
  const referenceBytes = secondCopy ? weightBytes(model, dtype, options.referenceQuantType) : 0;
  const optimizerBytes = trainable * (trainedSize + 8 + (halved ? 4 : 0));
  const { spec } = model.decoder;
  const perLayer = layerElements(spec, adapters) * size;
  const layers = checkpointing ? spec.layers * spec.hiddenSize * size + perLayer : spec.layers * perLayer;
  // Backward's temporaries are about one block's size. A chunk of f32 logits comes with its softmax and gradients, and
  // with the chunks that forward keeps: four more on the CPU, all on CUDA if there is room.
  const device = options.device ?? defaultDevice();
  const chunk = logprobChunk(spec.vocabSize, device);
  const keptOnCuda = keepsLogits(tokens, spec.vocabSize, device) ? tokens : 0;
  // Backward of kept logits makes one gradient for all of them, in the model's dtype; an f32 gradient overwrites them.
  const beside = Math.max(4 * Math.min(tokens, chunk), size < 4 ? keptOnCuda / 2 : 0);
  const rows = device === 'cpu' ? Math.min(tokens, 5 * chunk) : beside + keptOnCuda;
  const loss = 4 * rows * spec.vocabSize + 2 * tokens * spec.hiddenSize * size;
  // Half-precision gradients are widened to f32 for the optimiser's step. By then the activations are freed.
  const step = halved ? 4 * trainable : 0;
  const activationBytes = Math.max(tokens * (layers + perLayer) + loss, step);
  return {
    parameters,
    trainable,
    weightBytes: heldBytes,
    referenceBytes,
    optimizerBytes,
    activationBytes,
    totalBytes: heldBytes + referenceBytes + optimizerBytes + activationBytes,
  };
}

/** Bytes of a decoder's weights when they are loaded in this dtype, or quantised to this type. */
export function weightBytes(model: Model, dtype: DType, quantType?: QuantType): number {
  const plain = model.decoder.parameterCount() * dtypeBytes[dtype];
  if (quantType === undefined) return plain;
  let saved = 0;
  for (const { parts, outputs, inputs } of model.decoder.projections()) {
    const rows = parts.map((part) => part.outputs);
    saved += outputs * inputs * dtypeBytes[dtype] - quantisedBytes(rows, inputs, quantType);
  }
  return plain - saved;
}

interface AdapterShape {
  parameters: number;
  /** The projections that have an adapter, by the last part of their names. */
  adapted: { qkv: boolean; up: boolean; down: boolean };
  /** Elements per token and layer that dropout adds: a second copy of the adapter's input, and the mask. */
  dropped: number;
}

/** The sizes of a model's adapters. A target that matches no module is an error that lists the modules. */
function adapterShape(model: Model, options: LoraOptions): AdapterShape {
  const config = loraConfig(model, options);
  const targets = loraTargets(model, config);
  const parameters = targets.reduce((sum, { projection, part, r }) => {
    const outputs = projection.parts[part]?.outputs ?? 0;
    return sum + r * (projection.inputs + outputs) + (config.useDora ? outputs : 0);
  }, 0);
  const touched = new Set(targets.map((target) => target.projection));
  const has = (which: 'qkv' | 'up' | 'down') => model.decoder.layers.some((layer) => touched.has(layer.weights[which]));
  const inputs = [...touched].reduce((sum, projection) => sum + projection.inputs, 0) / model.decoder.layers.length;
  return {
    parameters,
    adapted: { qkv: has('qkv'), up: has('up'), down: has('down') },
    dropped: config.dropout > 0 ? 2 * inputs : 0,
  };
}

/**
 * Elements per token that a block's backward needs. A linear layer keeps its input only if its weight or its adapter is
 * trained. Norms, attention and the activation always keep theirs.
 */
function layerElements(spec: DecoderSpec, lora: AdapterShape | null): number {
  const { hiddenSize: hidden, attention, mlp } = spec;
  const { heads, kvHeads, headDim, layout } = attention;
  const wanted = lora?.adapted ?? { qkv: true, up: true, down: true };
  const queries = heads * headDim;
  const keys = kvHeads * headDim;
  // The fused q, k, v result stays alive because v is a view of it; the rotated q and k are new tensors.
  const turned = spec.positions.kind === 'rope' ? queries + keys : layout === 'grouped' ? queries : 0;
  const attended = queries + 2 * keys + turned + queries;
  const normed = (wanted.qkv ? hidden : 0) + (spec.parallel !== 'one-norm' && wanted.up ? hidden : 0);
  const residuals = spec.parallel === false ? 2 * hidden : hidden;
  const inner = (mlp.gated ? 2 : 1) * mlp.size + (wanted.down ? mlp.size : 0);
  return residuals + normed + attended + inner + (lora?.dropped ?? 0);
}
