/**
 * Datasets: sources → examples of one shape → tokens on disk → packed batches.
 *
 *     const pairs = await openDataset('pairs.jsonl', { shape: 'preference' });
 *     await using tokens = await tokenise(pairs, tokenizer, { maxLength: 2048 });
 *     for await (const batch of new Batches(tokens, { batchSize: 32 })) …
 */

export { Dataset, type DatasetOptions, type DatasetSpec, openDataset } from './dataset.ts';
export type { ColumnNames, ColumnRole } from './shapes/columns.ts';
export {
  type Conversation,
  type Example,
  type ExampleOf,
  type GradedSolution,
  type LabelledSteps,
  type Message,
  type PreferencePair,
  type PromptExample,
  type Shape,
  type StepLabel,
  shapes,
  type TextExample,
  type UnpairedExample,
} from './shapes/shapes.ts';
export type { DatasetHub } from './sources/hub.ts';
export type { Row } from './sources/row.ts';
export { Tally } from './tally.ts';
export { type Batch, packBatch } from './tokens/batch.ts';
export { Batches, type BatchOptions, type BatchState } from './tokens/batches.ts';
export { type EncodeOptions, ExampleEncoder } from './tokens/encode.ts';
export type { TokenRecord, TokenSequence } from './tokens/record.ts';
export { TokenStore } from './tokens/store.ts';
export { type TokeniseOptions, tokenise } from './tokens/tokenise.ts';
