/** Hugging Face checkpoints in and out, and everything that runs them. */
export * from './batch.ts';
export { Decoder, type NamedWeight } from './decoder.ts';
export * from './head.ts';
export * from './hub.ts';
export { type LoadOptions, readConfig } from './load.ts';
export * from './logprobs.ts';
export * from './model.ts';
export type { DecoderSpec } from './spec.ts';
