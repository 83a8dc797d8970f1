/**
 * Trains a tokenizer on your own texts: byte-level BPE as in GPT-2, saved as a folder that transformers loads too.
 *
 *     const tokenizer = await trainBpe(texts, { out: './tokenizer', vocabSize: 4096 });
 */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { byteLevelAlphabet, byteLevelPreTokenizer, Tokenizer as NativeTokenizer } from 'tokenizers';
import { anything, checkArguments, filledText, list, type Rule, signal, text, whole } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { patternRisk } from '../../pattern.ts';
import type { Progress } from '../../progress.ts';
import { ChatTemplate, type Message, plainChatTemplate } from '../chat/chat.ts';
import { learnMerges, MERGES_BETWEEN_PAUSES } from './bpe-merges.ts';
import { Tokenizer } from './tokenizer.ts';

/** Vocabulary size, special tokens and output folder of a new tokenizer. */
export interface TrainBpeOptions {
  /** The folder to write. */
  out: string;
  /** Size of the vocabulary: special tokens, 256 bytes and merges. It is smaller if the texts have too few pairs. */
  vocabSize: number;
  /** They get the first ids; those of ChatML unless given. */
  specialTokens?: readonly string[];
  /** The special token that ends a response; `<|im_end|>` if it is one of them, else the first. */
  eosToken?: string;
  /** The first special token unless given. */
  padToken?: string;
  bosToken?: string;
  minFrequency?: number;
  /**
   * A regular expression for the pieces that are never merged with one another, instead of GPT-2's. If it splits off
   * `\\p{N}`, every digit is a token, so that arithmetic can be learnt digit by digit.
   */
  pattern?: string;
  /** `null` for none. */
  chatTemplate?: string | null;
  progress?: Progress;
  signal?: AbortSignal;
}

const optionRules: Record<keyof TrainBpeOptions, Rule> = {
  ...{ out: filledText, vocabSize: anything, specialTokens: list(filledText), eosToken: text, padToken: text },
  ...{ bosToken: text, minFrequency: whole(1), pattern: text, progress: anything, signal },
  chatTemplate: { fits: (value) => value === null || text.fits(value), wanted: 'text, or null for none' },
};

const CHARACTERS_BETWEEN_PAUSES = 1_000_000;
const BYTES = 256;

/** Trains a byte-level BPE tokenizer and saves it. */
export async function trainBpe(
  texts: AsyncIterable<string> | Iterable<string>,
  options: TrainBpeOptions,
): Promise<Tokenizer> {
  checkArguments('trainBpe', options, optionRules, ['out', 'vocabSize']);
  checkNames('trainBpe', options, Object.keys(optionRules));
  const special = [...new Set(options.specialTokens ?? ['<|endoftext|>', '<|im_start|>', '<|im_end|>'])];
  const roles = tokenRoles(special, options);
  const smallest = special.length + BYTES;
  if (!Number.isInteger(options.vocabSize) || options.vocabSize < smallest) {
    throw new UserError(
      `--vocab-size must be a whole number of at least ${smallest} (${special.length} special tokens and 256 bytes), not ${options.vocabSize}.`,
    );
  }
  if (options.pattern !== undefined) checkPattern(options.pattern);
  if (typeof options.chatTemplate === 'string') checkTemplate(options.chatTemplate, roles);
  const wordCounts = await countWords(texts, options);
  if (wordCounts.size === 0) throw new UserError('There is no text to train a tokenizer on.');
  const bar = options.progress?.start('learning merges', options.vocabSize - smallest, 'merges');
  const { vocab, merges } = await learnMerges(wordCounts, {
    alphabet: byteLevelAlphabet().sort(),
    firstId: special.length,
    vocabSize: options.vocabSize,
    minFrequency: options.minFrequency ?? 2,
    async onMerge(done) {
      bar?.advance(done);
      await turn();
      options.signal?.throwIfAborted();
    },
  });
  bar?.advance(merges.length % MERGES_BETWEEN_PAUSES);
  bar?.done();
  await mkdir(options.out, { recursive: true });
  const template = options.chatTemplate === undefined ? plainChatTemplate : options.chatTemplate;
  await writeJson(join(options.out, 'tokenizer_config.json'), {
    tokenizer_class: 'PreTrainedTokenizerFast',
    ...roles,
    clean_up_tokenization_spaces: false,
    ...(template !== null && { chat_template: template }),
  });
  await writeJson(join(options.out, 'tokenizer.json'), tokenizerJson(special, vocab, merges, options.pattern));
  return Tokenizer.load(options.out);
}

/**
 * Written beside it and renamed: if the disk is full, an earlier tokenizer survives, and a partial file is never taken
 * for a complete one.
 */
async function writeJson(path: string, value: unknown): Promise<void> {
  const part = `${path}.part`;
  try {
    await writeFile(part, `${JSON.stringify(value, null, 2)}\n`);
    await rename(part, path);
  } finally {
    await rm(part, { force: true });
  }
}

function tokenRoles(special: readonly string[], options: TrainBpeOptions): Record<string, string | undefined> {
  const roles = {
    bos_token: options.bosToken,
    eos_token: options.eosToken ?? special.find((token) => token === '<|im_end|>') ?? special[0],
    pad_token: options.padToken ?? special[0],
  };
  for (const [role, token] of Object.entries(roles)) {
    if (token !== undefined && !special.includes(token)) {
      throw new UserError(`The ${role} "${token}" is not among the special tokens: ${special.join(', ') || '(none)'}.`);
    }
  }
  return roles;
}

async function countWords(
  texts: AsyncIterable<string> | Iterable<string>,
  options: TrainBpeOptions,
): Promise<Map<string, number>> {
  const pieces = piecesBy(options.pattern);
  const counts = new Map<string, number>();
  const bar = options.progress?.start('reading texts', undefined, 'texts');
  let sincePause = 0;
  for await (const text of texts) {
    if (typeof text !== 'string') throw new UserError(`trainBpe: a text to train on is ${typeof text}: expected text.`);
    for (const word of pieces(text)) counts.set(word, (counts.get(word) ?? 0) + 1);
    bar?.advance(1);
    sincePause += text.length;
    if (sincePause < CHARACTERS_BETWEEN_PAUSES) continue;
    sincePause = 0;
    await turn();
    options.signal?.throwIfAborted();
  }
  bar?.done();
  return counts;
}

/** Refuses, before the training, a pattern that loading the tokenizer would refuse. */
function checkPattern(pattern: string): void {
  const refused = (why: string) => new UserError(`--pattern ${pattern} cannot be used: ${why}.`);
  const risk = patternRisk(pattern);
  if (risk !== undefined) throw refused(`it could run for ever (${risk})`);
  try {
    new RegExp(pattern, 'gu');
    // Another engine, whose expressions differ in some ways, will read the tokenizer.
    NativeTokenizer.fromString(JSON.stringify(tokenizerJson([], new Map(), [], pattern)));
  } catch (error) {
    throw refused((error as Error).message);
  }
}

/** A conversation that every template accepts: it has no system message, and its roles alternate. */
const conversation: Message[] = [
  { role: 'user', content: 'attune-asks' },
  { role: 'assistant', content: 'attune-replies' },
];

/** Otherwise a template would be parsed only with the first chat, which may be long after the tokenizer was made. */
function checkTemplate(source: string, roles: Record<string, string | undefined>): void {
  const refused = (why: string) => new UserError(`--chat-template cannot be used: ${why}`);
  let texts: string[];
  try {
    const template = new ChatTemplate(source, Object.fromEntries(Object.entries(roles).filter(([, token]) => token)));
    texts = [
      template.render(conversation),
      template.render(conversation.slice(0, 1), { addGenerationPrompt: true }),
      template.render([...conversation, ...conversation.slice(0, 1)], { addGenerationPrompt: true }),
    ];
  } catch (error) {
    throw refused((error as Error).message);
  }
  const lost = conversation.find(({ content }) => !texts[0]?.includes(content));
  if (lost) throw refused(`it leaves out what the ${lost.role} says.`);
}

/** Splits a text into the pieces within which tokens are merged, in the alphabet of byte-level vocabularies. */
function piecesBy(pattern: string | undefined): (text: string) => string[] {
  const bytes = byteLevelPreTokenizer(false, pattern === undefined);
  const words = (text: string) => bytes.preTokenizeString(text).map(([word]) => word);
  if (pattern === undefined) return words;
  const cut = new RegExp(pattern, 'gu');
  return (text) => {
    const pieces: string[] = [];
    let done = 0;
    for (const match of text.matchAll(cut)) {
      if (match.index > done) pieces.push(text.slice(done, match.index));
      if (match[0] !== '') pieces.push(match[0]);
      done = match.index + match[0].length;
    }
    if (done < text.length) pieces.push(text.slice(done));
    return pieces.flatMap(words);
  };
}

function tokenizerJson(
  special: readonly string[],
  vocab: ReadonlyMap<string, number>,
  merges: [string, string][],
  pattern: string | undefined,
) {
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const byteLevel = {
    type: 'ByteLevel',
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: pattern === undefined,
  };
  const split = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false };
  const ids = Object.fromEntries([...special.map((token, id): [string, number] => [token, id]), ...vocab]);
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: special.map((content, id) => ({ id, content, ...flags })),
    normalizer: null,
    pre_tokenizer: pattern === undefined ? byteLevel : { type: 'Sequence', pretokenizers: [split, byteLevel] },
    post_processor: { ...byteLevel, trim_offsets: false },
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: ids,
      merges,
    },
  };
}
