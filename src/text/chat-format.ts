/**
 * Formats prompts and responses as the text that a model reads. A response is always tokenised separately from its
 * prompt, as in sampling, so that training and generation have the same tokens where the two meet.
 */

import { checkArguments, oneOf } from '../arguments.ts';
import type { Message } from './chat/chat.ts';
import type { Tokenizer } from './tokenizer/tokenizer.ts';

/** The parts of a tokenizer that formatting needs. */
export type TextTokenizer = Pick<
  Tokenizer,
  'fingerprint' | 'encode' | 'encodeBatch' | 'encodeChat' | 'renderChat' | 'chatTemplate' | 'bosId' | 'eosId' | 'eosIds'
>;

/**
 * How a prompt is written: `chat` by the model's template, `transcript` as "Human: … Assistant: …" for models without
 * one, `raw` unchanged, `auto` as chat if the tokenizer has a template, else as a transcript.
 */
export type PromptFormat = (typeof promptFormats)[number];
const promptFormats = ['auto', 'chat', 'transcript', 'raw'] as const;

/** How prompts are written as text. */
export interface FormatOptions {
  format?: PromptFormat;
  /** Variables for the template, such as `enable_thinking`. */
  templateVariables?: Record<string, unknown>;
}

const speakers: Record<Message['role'], string> = {
  system: '',
  user: 'Human: ',
  assistant: 'Assistant: ',
  tool: 'Tool: ',
};
const probe = 'attune probe reply';
/** Responses that a template may change: it may move or remove thinking, or trim white space at the ends. */
const touchy = /^\s|\s$|<\/?think>/;
const checkedResponses = 32;

/** Formats prompts and responses for one tokenizer, in its chat template or as a transcript. */
export class ChatFormat {
  readonly chat: boolean;
  readonly #tokenizer: TextTokenizer;
  readonly #format: PromptFormat;
  readonly #variables: Record<string, unknown> | undefined;
  readonly #bos: number[];
  #frame: { lead: string; tail: string } | undefined;
  #checksLeft = checkedResponses;

  constructor(tokenizer: TextTokenizer, options: FormatOptions = {}) {
    const { format = 'auto' } = options;
    this.#tokenizer = tokenizer;
    checkArguments('ChatFormat', { format }, { format: oneOf(promptFormats) });
    this.#format = format === 'auto' ? (tokenizer.chatTemplate === undefined ? 'transcript' : 'chat') : format;
    this.#variables = options.templateVariables;
    this.chat = this.#format === 'chat';
    const [first] = this.chat ? [] : tokenizer.encode('', { addSpecialTokens: true });
    // A rendered chat writes its own beginning-of-text token.
    this.#bos = first !== undefined && first === tokenizer.bosId ? [first] : [];
  }

  /** Ids before the prompt's own: the beginning-of-text token of plain text, if the model has one. */
  get bos(): readonly number[] {
    return this.#bos;
  }

  /** The text before the response. */
  prompt(messages: readonly Message[]): string {
    if (this.chat) return this.#render(messages, true);
    if (this.#format === 'raw') return messages.map(({ content }) => content).join('\n\n');
    return `${messages.map(({ role, content }) => `\n\n${speakers[role]}${content}`).join('')}\n\nAssistant:`;
  }

  /** The response with the text that the template writes around it. */
  response(messages: readonly Message[], promptText: string, content: string): string {
    if (this.#format === 'raw') return content;
    if (!this.chat) return ` ${content}`;
    // A template writes the same text around every response. Rendering it once saves two of three renderings per pair;
    // the first responses are also rendered in full, as a check.
    if (this.#checksLeft === 0 && this.#frame !== undefined && !touchy.test(content)) {
      return this.#frame.lead + content + this.#frame.tail;
    }
    const exact = this.#exactResponse(messages, promptText, content);
    if (this.#checksLeft > 0 && !touchy.test(content)) {
      if (this.#checksLeft === checkedResponses) this.#frame = this.#frameOf(messages, promptText);
      if (this.#frame !== undefined && this.#frame.lead + content + this.#frame.tail !== exact) this.#frame = undefined;
      this.#checksLeft--;
    }
    return exact;
  }

  /** One step of a response that is labelled or scored by steps. */
  step(text: string, index: number, separator = '\n'): string {
    return `${index === 0 && !this.chat ? ' ' : ''}${text.trim()}${separator}`;
  }

  /** The response's ids up to the first end-of-turn token; one is added if the text has none. */
  closed(ids: Int32Array): Int32Array {
    const ends = this.#tokenizer.eosIds;
    const end = ids.findLastIndex((id) => ends.includes(id));
    if (end >= 0) return ids.subarray(0, end + 1);
    return this.#tokenizer.eosId === undefined ? ids : Int32Array.from([...ids, this.#tokenizer.eosId]);
  }

  encodeChat(messages: readonly Message[]): { ids: number[]; assistantMask: Uint8Array } {
    return this.#tokenizer.encodeChat(messages as Message[], { variables: this.#variables });
  }

  #exactResponse(messages: readonly Message[], promptText: string, content: string): string {
    const whole = this.#render([...messages, { role: 'assistant', content }], false);
    if (whole.startsWith(promptText)) return whole.slice(promptText.length);
    // Some templates write the generation prompt differently from a past turn (an open <think>): take the plain
    // response.
    return content;
  }

  #frameOf(messages: readonly Message[], promptText: string): { lead: string; tail: string } | undefined {
    const text = this.#exactResponse(messages, promptText, probe);
    const at = text.indexOf(probe);
    return at < 0 ? undefined : { lead: text.slice(0, at), tail: text.slice(at + probe.length) };
  }

  #render(messages: readonly Message[], addGenerationPrompt: boolean): string {
    return this.#tokenizer.renderChat(messages as Message[], { addGenerationPrompt, variables: this.#variables });
  }
}
