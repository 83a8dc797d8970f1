/** Loads the tokenizer of a model and checks that the two belong together. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { resolveModel } from '../../hub/hub.ts';
import type { Progress } from '../../progress.ts';
import { Tokenizer } from '../../text/index.ts';
import type { Model } from '../model.ts';
import { openBase, readAdapterConfig } from './adapter.ts';

/** Which tokenizer to load: that of a model, or another one. */
export interface TokenizerSource {
  model: string;
  /** Folder or hub name of a tokenizer other than the model's own. */
  tokenizer?: string;
  /** The config.json of a model that starts from random weights and has no tokenizer of its own. */
  fromConfig?: string;
}

/** Loads the named tokenizer, or the model's own. If an adapter's folder has none, its base model's is used. */
export async function loadTokenizer(wanted: string | TokenizerSource, progress?: Progress): Promise<Tokenizer> {
  const source: TokenizerSource = typeof wanted === 'object' && wanted !== null ? wanted : { model: wanted };
  if (source.tokenizer === undefined && source.fromConfig !== undefined) {
    throw new UserError('A model from scratch needs a tokenizer: --tokenizer FOLDER (made by attune tokenizer train).');
  }
  const folder = await resolveModel(source.tokenizer ?? source.model, { tokenizerOnly: true, progress });
  if (existsSync(join(folder, 'tokenizer.json'))) return Tokenizer.load(folder);
  const adapter = readAdapterConfig(folder);
  if (adapter === null) return Tokenizer.load(folder);
  return openBase(folder, adapter, (model) => loadTokenizer({ model }, progress));
}

/** Refuses two models of different vocabularies: their log-probs cannot be compared token by token. */
export function checkSameVocabulary(policy: Model, other: Model, name = 'The reference'): void {
  checkSameSize(policy.decoder.spec, other.decoder.spec, name);
}

/** The same check, given only their sizes. */
export function checkSameSize(policy: { vocabSize: number }, other: { vocabSize: number }, name: string): void {
  const [own, others] = [policy.vocabSize, other.vocabSize];
  if (own === others) return;
  throw new UserError(`${name} has ${others} tokens, the policy ${own}: they cannot be compared token by token.`);
}

/** Refuses a tokenizer with more tokens than the model has. */
export function checkVocabulary(model: Model, tokenizer: Tokenizer): void {
  const { vocabSize } = model.decoder.spec;
  if (tokenizer.vocabSize <= vocabSize) return;
  throw new UserError(
    `The tokenizer has ${tokenizer.vocabSize} tokens, the model only ${vocabSize}: they do not belong together.`,
  );
}

/**
 * Refuses a tokenizer of another family: its ids would mean other words to the model, and nothing else would detect it.
 * Renamed reserve tokens and added tokens are allowed.
 */
export async function checkTokenizer(source: TokenizerSource, tokenizer: Tokenizer): Promise<void> {
  if (source.tokenizer === undefined || source.fromConfig !== undefined) return;
  const own = await loadTokenizer({ model: source.model }).catch(() => undefined);
  const difference = own && tokenDifference(tokenizer, own);
  if (difference === undefined) return;
  throw new UserError(
    `The tokenizer ${source.tokenizer} is not the one that ${source.model} was trained with: ${difference}.`,
  );
}

/** How two tokenizers of different families differ; undefined if they are of the same family. */
export function tokenDifference(here: Tokenizer, there: Tokenizer): string | undefined {
  if (here.fingerprint === there.fingerprint) return undefined;
  const common = Math.min(here.vocabSize, there.vocabSize);
  const other = Array.from({ length: common }, (_, id) => id).filter((id) => there.token(id) !== here.token(id));
  if (other.length <= common / 100) return undefined;
  const [id = 0] = other;
  const token = (tokenizer: Tokenizer) => JSON.stringify(tokenizer.token(id));
  return `${other.length} of ${common} tokens differ (${id} is ${token(here)} here and ${token(there)} there)`;
}
