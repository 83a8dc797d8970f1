/** Hugging Face checkpoints in and out, and everything that runs them. */
export { loadAdapter, restoreAdapter, saveAdapter } from './adapter-files.ts';
export type { Adapter, Adapters } from './adapters.ts';
export * from './batch.ts';
export { Decoder, type NamedWeight } from './decoder.ts';
export * from './head.ts';
export * from './hub.ts';
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
export * from './model.ts';
export * from './score.ts';
export type { DecoderSpec } from './spec.ts';
