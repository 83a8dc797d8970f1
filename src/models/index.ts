/** Hugging Face checkpoints in and out, and everything that runs them. */
export { type QuantType, quantTypes } from '../nn/index.ts';
export { loadAdapter, restoreAdapter, saveAdapter } from './adapter-files.ts';
export type { Adapter, Adapters } from './adapters.ts';
export * from './batch.ts';
export { Decoder, type NamedWeight } from './decoder.ts';
export type { Generation, GenerationRequest } from './generation.ts';
export * from './head.ts';
export * from './hub.ts';
export { type Inspection, type InspectOptions, inspectModel } from './inspect.ts';
export { type LoadOptions, readConfig } from './load.ts';
export * from './logprobs.ts';
export {
  addLora,
  type LoraOptions,
  mergeAdapters,
  setAdapter,
  unloadAdapters,
  unmergeAdapters,
  withoutAdapters,
} from './lora.ts';
export { type MemoryEstimate, type MemoryOptions, trainingMemory, weightBytes } from './memory.ts';
export * from './model.ts';
export * from './sampler.ts';
export type { SamplingOptions } from './sampling.ts';
export * from './score.ts';
export type { DecoderSpec } from './spec.ts';
