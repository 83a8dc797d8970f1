/**
 * Datasets: sources → examples of one shape → tokens on disk → packed batches.
 *
 *     const pairs = await openDataset('pairs.jsonl', { shape: 'preference' });
 *     await using tokens = await tokenise(pairs, tokenizer, { maxLength: 2048 });
 *     for await (const batch of new Batches(tokens, { batchSize: 32 })) …
 */

export { ChatFormat, type FormatOptions, type PromptFormat, type TextTokenizer } from '../text/chat-format.ts';
export { Dataset, type DatasetOptions, type DatasetSpec, openDataset } from './dataset.ts';
export { type ColumnNames, type ColumnRole, columnRoles } from './shapes/columns.ts';
export { knownNames } from './shapes/known.ts';
export {
  type Conversation,
  type Example,
  type ExampleOf,
  type GradedSolution,
  type LabelledSteps,
  type Message,
  type PreferencePair,
  type PromptExample,
  promptKey,
  type Shape,
  type StepLabel,
  shapes,
  type TextExample,
  type UnpairedExample,
} from './shapes/shapes.ts';
export { fileBytes } from './sources/bytes.ts';
export type { DatasetHub } from './sources/hub.ts';
export { type TextLine, textLines } from './sources/lines.ts';
export type { Row } from './sources/row.ts';
export { Tally } from './tally.ts';
export { type Batch, packBatch } from './tokens/batch.ts';
export { Batches, type BatchOptions, type BatchState } from './tokens/batches.ts';
export { type EncodeOptions, ExampleEncoder } from './tokens/encode.ts';
export type { TokenRecord, TokenSequence } from './tokens/record.ts';
export { TokenStore } from './tokens/store.ts';
export { type TokeniseOptions, tokenCacheFolder, tokenise } from './tokens/tokenise.ts';
