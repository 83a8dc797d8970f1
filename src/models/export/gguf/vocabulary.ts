/** A tokenizer as llama.cpp's metadata: tokens with their kinds, merges or scores, special tokens, the chat template. */
import { UserError } from '../../../errors.ts';
import { readTokenizerFiles, type TokenizerFiles } from '../../../text/tokenizer/files.ts';
import { sequenceEnds } from '../../../text/tokenizer/sequence-ends.ts';
import { Tokenizer } from '../../../text/tokenizer/tokenizer.ts';
import { array, bool, type Metadata, string, uint32 } from './format.ts';
import { choosePreTokenizer } from './pre-tokenizer.ts';
import { sentencePieceScores } from './sentence-piece.ts';

/** llama.cpp's numbers for the kinds of tokens. */
const kinds = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

export interface Vocabulary {
  tokenizer: Tokenizer;
  metadata: Metadata;
  /** `gpt2` (byte-level) or `llama` (SentencePiece). */
  kind: 'gpt2' | 'llama';
  /** llama.cpp's name for the pre-tokenizer of a byte-level tokenizer. */
  pre: string | null;
  /** What llama.cpp does differently from the tokenizer; empty if no difference is known. */
  notes: string[];
}

/** `vocabSize` is the model's: ids beyond the tokenizer's are written as unused tokens. */
export async function readVocabulary(folder: string, vocabSize: number): Promise<Vocabulary> {
  const files = await readTokenizerFiles(folder);
  const tokenizer = await Tokenizer.load(folder);
  if (tokenizer.vocabSize > vocabSize)
    throw new UserError(
      `${folder}: the tokenizer has ${tokenizer.vocabSize} tokens, but the model only ${vocabSize}: they do not belong together.`,
    );
  const metadata: Metadata = new Map();
  const notes: string[] = [];
  const kind = kindOf(files, folder);
  metadata.set('tokenizer.ggml.model', string(kind));
  const pre = kind === 'gpt2' ? addBytePairs(metadata, files, tokenizer, notes) : null;
  if (kind === 'llama') addSentencePieces(metadata, files, vocabSize, notes);
  addTokens(metadata, files, tokenizer, vocabSize);
  addSpecialTokens(metadata, files, tokenizer);
  if (files.json.normalizer?.type === 'NFC')
    notes.push(
      'The tokenizer composes accents (NFC) before it splits; llama.cpp does not: decomposed text gives other tokens.',
    );
  return { tokenizer, metadata, kind, pre, notes };
}

function kindOf(files: TokenizerFiles, folder: string): Vocabulary['kind'] {
  const { json } = files;
  if (json.model.byte_fallback) return 'llama';
  if (JSON.stringify([json.pre_tokenizer, json.normalizer]).includes('"ByteLevel"')) return 'gpt2';
  throw new UserError(
    `${folder}: tokenizer.json is neither byte-level BPE nor SentencePiece-like (byte_fallback); llama.cpp has no tokenizer for it.`,
  );
}

function addBytePairs(metadata: Metadata, files: TokenizerFiles, tokenizer: Tokenizer, notes: string[]): string {
  const { model } = files.json;
  const added = files.json.added_tokens.map(({ content }) => content);
  const { name, alike, of } = choosePreTokenizer(model, added, (text) => tokenizer.encode(text));
  if (alike < of)
    notes.push(
      `llama.cpp knows pre-tokenizers by name only, and none of them splits text as this tokenizer does. The nearest, ` +
        `"${name}", gave the same tokens for ${alike} of ${of} texts. Text that is typed into llama.cpp becomes other tokens ` +
        'than in training, and answers can be wrong for that alone. What to do: send the ids that attune makes of the prompt ' +
        '(llama.cpp takes ids as a prompt), use "attune serve" for text, or train on a tokenizer made without --pattern.',
    );
  const merges = model.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')));
  metadata.set('tokenizer.ggml.pre', string(name)).set('tokenizer.ggml.merges', array('string', merges));
  return name;
}

function addSentencePieces(metadata: Metadata, files: TokenizerFiles, vocabSize: number, notes: string[]): void {
  const { scores, complete } = sentencePieceScores(files.json.model, vocabSize);
  if (!complete)
    notes.push(
      'The tokenizer merges fewer pairs than its vocabulary has room for; llama.cpp, which goes by the vocabulary, may split text otherwise.',
    );
  const { prefix, everywhere } = spacePrefix(files);
  if (prefix && !everywhere)
    notes.push('The tokenizer puts a space before the first text only; llama.cpp puts one after every special token.');
  metadata
    .set('tokenizer.ggml.pre', string('default'))
    .set('tokenizer.ggml.scores', array('float32', scores))
    .set('tokenizer.ggml.add_space_prefix', bool(prefix));
}

/** Whether the tokenizer puts a space before the text, and whether also after every special token. */
function spacePrefix({ json }: TokenizerFiles): { prefix: boolean; everywhere: boolean } {
  const text = JSON.stringify([json.normalizer, json.pre_tokenizer]);
  if (text.includes('"Prepend"')) return { prefix: true, everywhere: true };
  const scheme = /"prepend_scheme":"(\w+)"/.exec(text)?.[1];
  if (scheme !== undefined) return { prefix: scheme !== 'never', everywhere: scheme === 'always' };
  return { prefix: text.includes('"add_prefix_space":true'), everywhere: true };
}

function addTokens(metadata: Metadata, files: TokenizerFiles, tokenizer: Tokenizer, vocabSize: number): void {
  const added = new Set(files.json.added_tokens.map(({ content }) => tokenizer.tokenId(content)));
  const byteToken = files.json.model.byte_fallback ? /^<0x[0-9A-F]{2}>$/ : null;
  const tokens: string[] = [];
  const types: number[] = [];
  for (let id = 0; id < vocabSize; id++) {
    const token = tokenizer.token(id);
    tokens.push(token ?? `[PAD${id}]`);
    if (token === undefined) types.push(kinds.unused);
    else if (byteToken?.test(token)) types.push(kinds.byte);
    else if (byteToken !== null && id === tokenizer.unkId) types.push(kinds.unknown);
    else if (tokenizer.isSpecial(id)) types.push(kinds.control);
    else types.push(added.has(id) ? kinds.userDefined : kinds.normal);
  }
  metadata
    .set('tokenizer.ggml.tokens', array('string', tokens))
    .set('tokenizer.ggml.token_type', array('int32', types));
}

function addSpecialTokens(metadata: Metadata, files: TokenizerFiles, tokenizer: Tokenizer): void {
  const { bosId, eosId, unkId, eosIds, chatTemplate } = tokenizer;
  const ends = sequenceEnds(files, bosId, eosId);
  // Without these keys llama.cpp uses token 11 as beginning and end of a byte-level text.
  const ids = {
    bos_token_id: bosId ?? eosId,
    eos_token_id: eosId,
    eot_token_id: eosIds.find((id) => id !== eosId),
    unknown_token_id: unkId,
    padding_token_id: tokenizer.padId,
  };
  for (const [name, id] of Object.entries(ids))
    if (id !== undefined) metadata.set(`tokenizer.ggml.${name}`, uint32(id));
  metadata
    .set('tokenizer.ggml.add_bos_token', bool(bosId !== undefined && ends.before.includes(bosId)))
    .set('tokenizer.ggml.add_eos_token', bool(eosId !== undefined && ends.after.includes(eosId)));
  if (chatTemplate !== undefined) metadata.set('tokenizer.chat_template', string(chatTemplate));
}
