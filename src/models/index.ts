/** Hugging Face checkpoints in and out, and everything that runs them. */

export { type QuantType, quantTypes } from '../nn/index.ts';
export * from './decoder/batch.ts';
export { Decoder, type NamedWeight, withoutDropout } from './decoder/decoder.ts';
export * from './decoder/head.ts';
export * from './decoder/logprobs.ts';
export * from './decoder/responses.ts';
export { exportGguf, type GgufExport, type GgufOptions } from './export/export-gguf.ts';
export { type TensorType as GgufType, tensorTypes as ggufTypes } from './export/gguf/format.ts';
export { type GgufFile, openGguf } from './export/gguf/reader.ts';
export { exportMerged, type MergedOptions } from './export/merged.ts';
export type { DecoderSpec } from './families/spec.ts';
export { loadAdapter, restoreAdapter, saveAdapter } from './files/adapter.ts';
export { configQuantType } from './files/bitsandbytes.ts';
export { type LoadOptions, readConfig } from './files/decoder.ts';
export { deviceOf, dtypeOf } from './files/device.ts';
export { type Inspection, type InspectOptions, inspectModel } from './files/inspect.ts';
export * from './files/load.ts';
export { type MemoryEstimate, type MemoryOptions, trainingMemory, weightBytes } from './files/memory.ts';
export { saveModel } from './files/save.ts';
export {
  baseOfAdapter,
  checkSameVocabulary,
  checkTokenizer,
  checkVocabulary,
  loadTokenizer,
  type TokenizerSource,
} from './files/tokenizer.ts';
export {
  type Generation,
  type GenerationRequest,
  QueueFullError,
  SamplerDisposedError,
  type Token,
  WeightsChangedError,
} from './generate/request.ts';
export * from './generate/sampler.ts';
export type { SamplingOptions, TokenLogprob } from './generate/sampling.ts';
export type { Submission } from './generate/submission.ts';
export type { Adapter, Adapters } from './lora/adapters.ts';
export {
  addLora,
  type LoraOptions,
  mergeAdapters,
  setAdapter,
  unloadAdapters,
  unmergeAdapters,
  withoutAdapters,
} from './lora/lora.ts';
export * from './model.ts';
export * from './score.ts';
export * from './text/language-model.ts';
export { StopText } from './text/stop-text.ts';
