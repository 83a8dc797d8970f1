/** Reads and writes Hugging Face checkpoints, and runs the models. */

export { type QuantType, quantTypes } from '../nn/index.ts';
export { type PackedBatch, packSequences, type Sharing } from './decoder/batch.ts';
export { Decoder, type NamedWeight } from './decoder/decoder.ts';
export { type HeadKind, ScoreHead } from './decoder/head.ts';
export { scoredTokens, type TokenLogprobs, tokenLogprobs } from './decoder/logprobs.ts';
export {
  type MicroBatchLimits,
  microBatches,
  type PackedResponses,
  type PromptedResponse,
  packResponses,
  responseBatches,
  responseLogprobs,
  responsesOf,
  type SequencesWithPrompts,
} from './decoder/responses.ts';
export { withoutDropout } from './decoder/temporarily.ts';
export { exportGguf, type GgufExport, type GgufOptions } from './export/export-gguf.ts';
export { type TensorType as GgufType, tensorTypes as ggufTypes } from './export/gguf/format.ts';
export { type GgufFile, openGguf } from './export/gguf/reader.ts';
export { exportMerged, type MergedOptions } from './export/merged.ts';
export type { DecoderSpec } from './families/spec.ts';
export { loadAdapter, restoreAdapter, saveAdapter } from './files/adapter.ts';
export type { LoadOptions } from './files/decoder.ts';
export { deviceOf, dtypeOf } from './files/device.ts';
export { type Inspection, type InspectOptions, inspectModel } from './files/inspect.ts';
export { initModel, loadModel, loadModelFolder } from './files/load.ts';
export { type MemoryEstimate, type MemoryOptions, trainingMemory, weightBytes } from './files/memory.ts';
export { saveModel } from './files/save.ts';
export { loadTokenizer, type TokenizerSource } from './files/tokenizer.ts';
export { type CacheDtype, cacheDtypes } from './generate/cache/cache.ts';
export {
  type CacheUse,
  type GenerateOptions,
  type GenerationRequest,
  type PromptCounts,
  QueueFullError,
  type SampledResponse,
  SamplerDisposedError,
  type SamplerOptions,
  type Token,
  WeightsChangedError,
} from './generate/request.ts';
export { createSampler, Sampler } from './generate/sampler.ts';
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
export { Model, type ModelNotes } from './model.ts';
export { type Precision, precisions } from './precision.ts';
export { type HeadOutputOptions, headOutputBatches, headOutputs, type ScoredSequence } from './score.ts';
export { generate, LanguageModel, stream, type TextRequest, type TextResponse } from './text/language-model.ts';
