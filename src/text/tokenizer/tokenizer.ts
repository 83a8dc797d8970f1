/**
 * Encodes text as token ids and decodes them, and renders chats with the model's template.
 *
 *     const tokenizer = await Tokenizer.load('./Qwen3-0.6B');
 *     tokenizer.decode(tokenizer.encode('Hello'));                       // 'Hello'
 *     const { ids, assistantMask } = tokenizer.encodeChat(messages);     // what SFT trains on
 */

import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Decoder, Tokenizer as NativeTokenizer } from 'tokenizers';
import { checkArgument, list, text } from '../../arguments.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { assistantSpans, replyTail } from '../chat/assistant-span.ts';
import { type ChatOptions, ChatTemplate, type Message } from '../chat/chat.ts';
import { AddedTokens } from './added-tokens.ts';
import { Encoder } from './encoder.ts';
import { readTokenizerFiles, type TokenizerFiles } from './files.ts';
import { type SequenceEnds, sequenceEnds } from './sequence-ends.ts';
import { byteStream, type TextStream, type TokenText, textStream, tokenText } from './stream.ts';
import { bytesOfToken, mostTokenBytes, tokenStyle } from './token-bytes.ts';

export type { Message } from '../chat/chat.ts';

/** Options of `encode`. */
export interface EncodeOptions {
  /** Adds BOS and EOS as the model expects them. Off by default, because a rendered chat has its own. */
  addSpecialTokens?: boolean;
  /** Treats names of special and other added tokens as plain text, for text from strangers. */
  plain?: boolean;
}

/** Options of `decode`. */
export interface DecodeOptions {
  skipSpecialTokens?: boolean;
}

/** A rendered chat as token ids, with the assistant's tokens marked. */
export interface ChatTokens {
  ids: number[];
  /** 1 if the token is the assistant's: its response and the token that ends its turn. */
  assistantMask: Uint8Array;
}

/** Most texts, and most characters, that are tokenised before other work gets a turn. */
const BATCH_TEXTS = 512;
const BATCH_CHARACTERS = 2 ** 18;

/** A model's tokenizer and chat template. */
export class Tokenizer {
  readonly vocabSize: number;
  readonly bosId?: number;
  readonly eosId?: number;
  /** The EOS token if the model has no padding token. */
  readonly padId?: number;
  readonly unkId?: number;
  /** All ids that end a turn: the tokenizer's EOS, those of generation_config.json, the chat template's. */
  readonly eosIds: number[];
  readonly fingerprint: string;
  readonly chatTemplate?: string;

  readonly #files: TokenizerFiles;
  readonly #native: NativeTokenizer;
  readonly #decoder: Decoder | null;
  readonly #encoder: Encoder;
  readonly #ends: SequenceEnds;
  readonly #special: AddedTokens;
  readonly #specialIds = new Set<number>();
  readonly #tokens: string[] = [];
  readonly #texts: TokenText[] = [];
  #addedIds: ReadonlySet<number> | undefined;
  #style: 'byte-level' | 'plain' | undefined;
  #mostTokenBytes: number | undefined;
  readonly #templates = new Map<string, ChatTemplate>();

  private constructor(files: TokenizerFiles, native: NativeTokenizer) {
    const { json, specialTokens } = files;
    this.#files = files;
    this.#native = native;
    this.#decoder = native.getDecoder();
    // Where the file's ids of added tokens are not consecutive, the native package assigns its own, as in transformers.
    for (const token of json.added_tokens) token.id = native.tokenToId(token.content) ?? token.id;
    this.#encoder = new Encoder(json, native);
    for (const token in json.model.vocab) this.#tokens[json.model.vocab[token] as number] = token;
    for (const token of json.added_tokens) {
      this.#tokens[token.id] = token.content;
      if (token.special) this.#specialIds.add(token.id);
    }
    this.#special = new AddedTokens(json.added_tokens.filter((token) => token.special));
    this.vocabSize = this.#tokens.length;
    this.bosId = this.#idOf('bos_token', specialTokens.bos);
    this.eosId = this.#idOf('eos_token', specialTokens.eos) ?? files.modelEosIds[0];
    this.unkId = specialTokens.unk === undefined ? undefined : this.tokenId(specialTokens.unk);
    this.padId = (specialTokens.pad === undefined ? undefined : this.tokenId(specialTokens.pad)) ?? this.eosId;
    this.#ends = sequenceEnds(files, this.bosId, this.eosId);
    this.chatTemplate = files.chatTemplates.get('default') ?? files.chatTemplates.values().next().value;
    this.eosIds = [...new Set([this.eosId, ...files.modelEosIds, this.#templateEosId()])].filter(
      (id) => id !== undefined,
    );
    this.fingerprint = fingerprintOf(files);
  }

  /** Reads a folder with tokenizer.json and, if present, the files that describe its special tokens and chats. */
  static async load(folder: string): Promise<Tokenizer> {
    checkArgument("A tokenizer's folder", folder, text);
    const files = await readTokenizerFiles(folder);
    try {
      const native = NativeTokenizer.fromString(files.jsonText);
      // A file may hold its author's truncation and padding settings; here the caller decides.
      native.disableTruncation();
      native.disablePadding();
      return new Tokenizer(files, native);
    } catch (error) {
      if (error instanceof AttuneError) throw error;
      throw new UserError(`${join(folder, 'tokenizer.json')} cannot be used: ${(error as Error).message}`);
    }
  }

  /** The id of one token, as the vocabulary writes it. */
  tokenId(token: string): number | undefined {
    return this.#native.tokenToId(token) ?? undefined;
  }

  /** The token of an id, as the vocabulary writes it. */
  token(id: number): string | undefined {
    return this.#tokens[id];
  }

  /** The bytes that a token writes; undefined for an id that does not exist. */
  tokenBytes(id: number): Uint8Array | undefined {
    const token = this.#tokens[id];
    if (token === undefined) return undefined;
    this.#addedIds ??= new Set(this.#files.json.added_tokens.map((added) => added.id));
    this.#style ??= tokenStyle(this.#files.json);
    return bytesOfToken(token, this.#style, this.#addedIds.has(id));
  }

  isSpecial(id: number): boolean {
    return this.#specialIds.has(id);
  }

  encode(given: string, options: EncodeOptions = {}): number[] {
    if (typeof given !== 'string') checkArgument('encode', given, text);
    const ids = options.plain ? this.#encoder.encodePlain(given) : this.#encoder.encode(given);
    return options.addSpecialTokens ? [...this.#ends.before, ...ids, ...this.#ends.after] : ids;
  }

  /** Many texts at once, on the native package's threads; the order is kept. */
  async encodeBatch(texts: readonly string[], options: Omit<EncodeOptions, 'plain'> = {}): Promise<Int32Array[]> {
    checkArgument('encodeBatch', texts, list(text));
    const { before, after } = options.addSpecialTokens ? this.#ends : { before: [], after: [] };
    const result: Int32Array[] = [];
    for (let start = 0; start < texts.length; ) {
      let [end, characters] = [start, 0];
      while (end < texts.length && end < start + BATCH_TEXTS && characters < BATCH_CHARACTERS)
        characters += (texts[end++] as string).length;
      for (const encoding of await this.#native.encodeBatch(texts.slice(start, end), { addSpecialTokens: false })) {
        const ids = encoding.getIds();
        result.push(Int32Array.from(before.length + after.length === 0 ? ids : [...before, ...ids, ...after]));
      }
      start = end;
    }
    return result;
  }

  /** A lower bound on a text's tokens, from its bytes, without tokenising it. 0 if there is none. */
  leastTokens(given: string): number {
    this.#mostTokenBytes ??= mostTokenBytes(this.#files.json);
    return Math.ceil(Buffer.byteLength(given) / this.#mostTokenBytes);
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    const tokens: string[] = [];
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i] as number;
      const token = this.#tokens[id];
      if (token === undefined || (options.skipSpecialTokens && this.#specialIds.has(id))) continue;
      tokens.push(token);
    }
    return this.#decoder === null ? tokens.join(' ') : this.#decoder.decode(tokens);
  }

  /** Decodes while tokens arrive; the pieces joined equal `decode` of the whole. */
  stream(options: DecodeOptions = {}): TextStream {
    const { decoder } = this.#files.json;
    if (decoder?.type !== 'ByteLevel') return textStream((ids) => this.decode(ids, options));
    return byteStream((id) => (options.skipSpecialTokens && this.#specialIds.has(id) ? undefined : this.#textOf(id)));
  }

  /**
   * The output of a byte-level decoder for a token. Unlike `tokenBytes`, it also reads the letters of added tokens as
   * bytes.
   */
  #textOf(id: number): TokenText | undefined {
    const known = this.#texts[id];
    const token = this.#tokens[id];
    if (known !== undefined || token === undefined) return known;
    const made = tokenText(bytesOfToken(token, 'byte-level', false));
    this.#texts[id] = made;
    return made;
  }

  /** The chat as text. `template` is a template's name or source, instead of the tokenizer's own. */
  renderChat(messages: readonly Message[], options: ChatOptions & { template?: string } = {}): string {
    return this.#template(options.template).render(messages, options);
  }

  encodeChat(messages: readonly Message[], options: ChatOptions & { template?: string } = {}): ChatTokens {
    const template = this.#template(options.template);
    const text = template.render(messages, options);
    const render = (part: readonly Message[], addGenerationPrompt: boolean) =>
      template.render(part, { ...options, addGenerationPrompt });
    // A generation prompt at the end would hide where the last turn ends.
    const closed = options.addGenerationPrompt ? render(messages, false) : text;
    const spans = assistantSpans(closed, messages, render, (tail) => this.#specialEnd(tail));
    const { ids, tokensBefore } = this.#encoder.encodeWithCuts(
      text,
      spans.flatMap((span) => [span.start, span.end]),
    );
    const assistantMask = new Uint8Array(ids.length);
    for (let i = 0; i < tokensBefore.length; i += 2) assistantMask.fill(1, tokensBefore[i], tokensBefore[i + 1]);
    return { ids, assistantMask };
  }

  /** Writes the files it was loaded from, byte for byte, so that transformers loads the same tokenizer. */
  async save(folder: string): Promise<void> {
    await mkdir(folder, { recursive: true });
    for (const [name, content] of this.#files.contents) await writeFile(join(folder, name), content);
  }

  #idOf(name: string, token: string | undefined): number | undefined {
    if (token === undefined) return undefined;
    const id = this.tokenId(token);
    if (id === undefined) {
      throw new UserError(
        `tokenizer_config.json names ${name} "${token}", which is not in the vocabulary of tokenizer.json.`,
      );
    }
    return id;
  }

  #template(choice: string | undefined): ChatTemplate {
    const source = choice === undefined ? this.chatTemplate : (this.#files.chatTemplates.get(choice) ?? choice);
    if (source === undefined) {
      throw new UserError(
        'This tokenizer has no chat template (neither chat_template in tokenizer_config.json nor chat_template.jinja). ' +
          'Pass one explicitly, for instance plainChatTemplate (ChatML).',
      );
    }
    let template = this.#templates.get(source);
    if (template === undefined) {
      const { bos, eos, pad, unk } = this.#files.specialTokens;
      // Missing tokens stay undefined, as in transformers, so that templates can test for them.
      template = new ChatTemplate(source, defined({ bos_token: bos, eos_token: eos, pad_token: pad, unk_token: unk }));
      this.#templates.set(source, template);
    }
    return template;
  }

  #specialEnd(text: string): number {
    return this.#special.split(text).find((section) => section.id !== undefined)?.end ?? -1;
  }

  #templateEosId(): number | undefined {
    if (this.chatTemplate === undefined) return undefined;
    try {
      const template = this.#template(undefined);
      const exchange: Message[] = [
        { role: 'user', content: 'Hi' },
        { role: 'assistant', content: 'Hi' },
      ];
      const tail = replyTail(exchange, (messages) => template.render(messages));
      return this.#special.split(tail).find((section) => section.id !== undefined)?.id;
    } catch (error) {
      // A template that fails on a plain exchange reports its error when it is used.
      if (error instanceof AttuneError) return undefined;
      throw error;
    }
  }
}

function defined(values: Record<string, string | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

function fingerprintOf(files: TokenizerFiles): string {
  const hash = createHash('sha256');
  for (const name of [...files.contents.keys()].sort()) {
    hash
      .update(`${name}\0`)
      .update(files.contents.get(name) as Buffer)
      .update('\0');
  }
  return hash.digest('hex').slice(0, 32);
}
