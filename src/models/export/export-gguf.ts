/**
 * Writes a model as a GGUF file for llama.cpp and programs built on it, with a Modelfile for Ollama beside it.
 *
 *     const { path, notes } = await exportGguf({ model: './merged', type: 'q8_0', out: 'm.gguf' });
 */

import { closeSync, existsSync, openSync, readFileSync, readSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { checkArguments, flag, oneOf, text } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { refuseExisting } from '../../existing-file.ts';
import { makeFolder } from '../../folder.ts';
import type { Progress } from '../../progress.ts';
import { architectureOf } from './gguf/architecture.ts';
import {
  layouts,
  MAGIC,
  type Metadata,
  string,
  type TensorInfo,
  type TensorType,
  tensorBytes,
  tensorTypes,
  uint32,
} from './gguf/format.ts';
import { hyperparameters } from './gguf/hyperparameters.ts';
import { modelfile, modelfilePath } from './gguf/modelfile.ts';
import { openGguf } from './gguf/reader.ts';
import { ggufTensors } from './gguf/tensors.ts';
import { readVocabulary } from './gguf/vocabulary.ts';
import { writeGguf } from './gguf/writer.ts';
import { type MergeSource, openMerged } from './merged.ts';

/** What to export, in which tensor type, and where. */
export interface GgufOptions extends MergeSource {
  type: TensorType;
  /** The file to write, `….gguf`. */
  out: string;
  /**
   * Replaces an earlier GGUF file and its Modelfile. Without it, an existing GGUF file or an edited Modelfile is
   * refused.
   */
  overwrite?: boolean;
}

/** What was written, and how llama.cpp's results will differ on this model. */
export interface GgufExport {
  path: string;
  /** `Modelfile` beside it, or `<name>.Modelfile` if that one belongs to another model. */
  modelfile: string;
  bytes: number;
  architecture: string;
  tensors: number;
  /** llama.cpp's name for the pre-tokenizer; null for SentencePiece-like tokenizers. */
  preTokenizer: string | null;
  /** What llama.cpp does differently from attune; empty if no difference is known. */
  notes: string[];
}

const READ_BYTES = 2 ** 24;

/** Writes a model, its adapter merged, as a GGUF file and a Modelfile, and reads the file back to check it. */
export async function exportGguf(
  options: GgufOptions,
  { progress }: { progress?: Progress } = {},
): Promise<GgufExport> {
  const known = { model: text, adapter: text, type: oneOf(tensorTypes), out: text, overwrite: flag };
  checkArguments('exportGguf', options, known, ['model', 'type', 'out']);
  checkNames('exportGguf', options, [...Object.keys(known), 'dtype']);
  const path = target(options);
  // An adapter is merged in float32, so that the result is rounded only once, when it is encoded.
  const dtype = options.dtype ?? (options.adapter === undefined ? undefined : 'float32');
  using merged = await openMerged({ ...options, dtype }, progress);
  const { model, tokenizerFolder } = merged;
  const { decoder } = model;
  if (model.head !== null || !decoder.weights.lm)
    throw new UserError(`${options.model}: this is a reward model; a GGUF file holds a language model.`);
  const architecture = architectureOf(decoder.spec, options.model);
  if (tokenizerFolder === null)
    throw new UserError(`${options.model}: there is no tokenizer.json, and a GGUF file holds the tokenizer too.`);
  const vocabulary = await readVocabulary(tokenizerFolder, decoder.spec.vocabSize);
  const metadata: Metadata = new Map([
    ['general.architecture', string(architecture.name)],
    ['general.type', string('model')],
    ['general.name', string(nameOf(options))],
    ['general.file_type', uint32(layouts[options.type].fileType)],
    ...hyperparameters(decoder.spec, architecture),
    ...vocabulary.metadata,
  ]);
  if (options.type.startsWith('q')) metadata.set('general.quantization_version', uint32(2));
  const beside = modelfilePath(path);
  const addsBos = vocabulary.metadata.get('tokenizer.ggml.add_bos_token')?.value === true;
  const ollama = modelfile(beside, basename(path), vocabulary.tokenizer, addsBos);
  refuseEdited(beside, ollama, options);
  const tensors = ggufTensors(decoder, architecture, options.type);
  const total = tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  const bar = progress?.start('writing', 2 * total, 'bytes');
  const advance = (bytes: number) => bar?.advance(bytes);
  makeFolder(dirname(path));
  writeGguf(path, metadata, tensors, (written, sums) => readBack(written, metadata, tensors, sums, advance), advance);
  bar?.done();
  writeFileSync(beside, ollama);
  return {
    path,
    modelfile: beside,
    bytes: statSync(path).size,
    architecture: architecture.name,
    tensors: tensors.length,
    preTokenizer: vocabulary.pre,
    notes: [...vocabulary.notes, ...windowNotes(decoder.spec)],
  };
}

function windowNotes({
  attention,
  maxPositions,
}: {
  attention: { windows: (number | null)[] };
  maxPositions: number;
}): string[] {
  const shortest = Math.min(...attention.windows.filter((window) => window !== null));
  return shortest < maxPositions
    ? [
        `llama.cpp has no sliding window for this family: its context is set to the window's ${shortest} tokens, within which there is no difference.`,
      ]
    : [];
}

/** The path to write. Only an earlier GGUF file can be replaced. */
function target({ out, overwrite }: GgufOptions): string {
  const path = resolve(out);
  if (!path.endsWith('.gguf')) throw new UserError(`--out ${out}: the name of a GGUF file ends in ".gguf".`);
  if (existsSync(path) && !isGguf(path))
    throw new UserError(`--out ${out} exists and is not a GGUF file; it is not written over.`);
  refuseExisting('--out', out, { overwrite });
  return path;
}

/** A Modelfile with other lines than an export writes was edited by somebody, or belongs to another model. */
function refuseEdited(path: string, text: string, { out, overwrite }: GgufOptions): void {
  if (overwrite || !existsSync(path) || readFileSync(path, 'utf8') === text) return;
  throw new UserError(
    `--out ${out}: ${path} has other lines than this export would write: name another file, or replace it with --overwrite.`,
  );
}

function isGguf(path: string): boolean {
  if (!statSync(path).isFile()) return false;
  const file = openSync(path, 'r');
  const bytes = new Uint8Array(4);
  const count = readSync(file, bytes);
  closeSync(file);
  return count === 4 && new DataView(bytes.buffer).getUint32(0, true) === MAGIC;
}

const nameOf = ({ model, adapter }: GgufOptions) => basename(resolve(adapter ?? model));

/** Reads the file back and checks its metadata, and that each tensor has the bytes that were written. */
function readBack(
  path: string,
  metadata: Metadata,
  tensors: readonly TensorInfo[],
  sums: ReadonlyMap<string, number>,
  onBytes: (bytes: number) => void,
): void {
  using file = openGguf(path);
  const wrong = (what: string) =>
    new Error(`The file does not read back as it was written: ${what}. Is the disk full or failing?`);
  if (file.metadata.size !== metadata.size || file.tensors.size !== tensors.length) throw wrong('the header');
  for (const key of metadata.keys()) if (!file.metadata.has(key)) throw wrong(key);
  for (const { name, shape, type } of tensors) {
    const stored = file.tensors.get(name);
    if (stored === undefined || stored.type !== type || stored.shape.join() !== shape.join()) throw wrong(name);
    let sum = 0;
    for (let at = 0; at < stored.bytes; at += READ_BYTES) {
      const piece = file.read(stored, at, Math.min(READ_BYTES, stored.bytes - at));
      sum = crc32(piece, sum);
      onBytes(piece.length);
    }
    if (sum !== sums.get(name)) throw wrong(name);
  }
}
