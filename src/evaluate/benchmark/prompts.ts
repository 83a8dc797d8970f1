/** Writes questions with their examples as prompts, as plain text or in the model's chat template. */
import { ChatFormat, type Message, type Tokenizer } from '../../text/index.ts';
import type { AnyFormat } from '../suites/formats.ts';
import type { Format, Question } from '../suites/question.ts';

/** How questions are presented to the model. */
export interface PromptStyle {
  /** In the model's chat template instead of plain text. */
  chat: boolean;
  /** Added to the question in a chat. Default: the format's own; empty for none. */
  instruction?: string;
  system?: string;
  templateVariables?: Record<string, unknown>;
}

/** A prompt as text and as token ids. */
export interface WrittenPrompt {
  text: string;
  ids: number[];
}

/** Writes prompts for one model. */
export class QuestionWriter {
  readonly #format: Format;
  readonly #tokenizer: Tokenizer;
  readonly #chat: ChatFormat;
  readonly #style: PromptStyle;

  constructor(format: AnyFormat, tokenizer: Tokenizer, style: PromptStyle) {
    this.#format = format as Format;
    this.#tokenizer = tokenizer;
    this.#style = style;
    const { templateVariables } = style;
    this.#chat = new ChatFormat(tokenizer, { format: style.chat ? 'chat' : 'raw', templateVariables });
  }

  /** The text up to where the answer begins. */
  text(question: Question, shots: readonly Question[]): string {
    const { prompt, description } = this.#format;
    if (this.#style.chat) return this.#chat.prompt(this.#messages(question, shots));
    const before = description === undefined ? '' : `${description(question)}\n\n`;
    const examples = shots.map((shot) => `${prompt(shot)}${this.delimiter}${this.#format.target(shot)}\n\n`);
    return `${before}${examples.join('')}${prompt(question)}`;
  }

  /** The text between a raw prompt and its answer. A chat template ends where the answer begins. */
  get delimiter(): string {
    return this.#style.chat ? '' : ' ';
  }

  prompt(question: Question, shots: readonly Question[]): WrittenPrompt {
    const text = this.text(question, shots);
    return { text, ids: this.#encode(text) };
  }

  /**
   * A prompt followed by an answer. The two are tokenised together, as in lm-evaluation-harness, because a space and
   * the word after it are often one token. The answer's tokens are those beyond the number that the prompt alone has.
   */
  withAnswer(text: string, answer: string): { ids: Int32Array; promptLength: number } {
    const context = text.trimEnd();
    const ids = Int32Array.from(this.#encode(`${context}${text.slice(context.length)}${this.delimiter}${answer}`));
    return { ids, promptLength: Math.min(this.#encode(context).length, ids.length - 1) };
  }

  #encode(text: string): number[] {
    const ids = [...this.#chat.bos, ...this.#tokenizer.encode(text)];
    // A model needs at least one token.
    return ids.length > 0 ? ids : [this.#tokenizer.bosId ?? this.#tokenizer.eosId ?? 0];
  }

  #messages(question: Question, shots: readonly Question[]): Message[] {
    const { description, target } = this.#format;
    const system = [this.#style.system, description?.(question)].filter((part) => part !== undefined).join('\n\n');
    return [
      ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
      ...shots.flatMap((shot): Message[] => [
        { role: 'user', content: this.#message(shot) },
        { role: 'assistant', content: target(shot) },
      ]),
      { role: 'user', content: this.#message(question) },
    ];
  }

  #message(question: Question): string {
    const { kind, prompt, message } = this.#format;
    if (kind === 'choice') return prompt(question);
    const { instruction = this.#format.instruction ?? '' } = this.#style;
    const asked = message?.(question) ?? question.text;
    return instruction === '' ? asked : `${asked}\n\n${instruction}`;
  }
}
