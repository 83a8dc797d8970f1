/**
 * Encodes prompts and responses as in the reward model's training, and finds the tokens whose scores count. attune's
 * own models tokenise prompt and response separately and score the token that ends the turn. Other libraries' models
 * tokenise the whole rendered chat at once and score its last token.
 */
import type { ScoredSequence } from '../models/index.ts';
import { ChatFormat, stripThinking, type Tokenizer } from '../text/index.ts';
import type { RewardNotes } from './reward-notes.ts';
import { promptMessages, type RewardItem } from './scorer.ts';

export interface ReadingOptions {
  /** Prompts are truncated from the left so that a sequence fits. */
  maxLength: number;
  /** The model's padding token. Classifiers of transformers score the last token that is not padding. */
  padId?: number;
}

/** A text as the model reads it. */
export interface ReadText extends ScoredSequence {
  /** The text has more tokens than `maxLength`, so its beginning is not read. */
  truncated: boolean;
}

export class RewardReader {
  readonly #tokenizer: Tokenizer;
  readonly #notes: RewardNotes;
  readonly #options: ReadingOptions;
  readonly #format: ChatFormat;

  constructor(tokenizer: Tokenizer, notes: RewardNotes, options: ReadingOptions) {
    this.#tokenizer = tokenizer;
    this.#notes = notes;
    this.#options = options;
    this.#format = new ChatFormat(tokenizer, { format: notes.format });
  }

  sequences(items: readonly RewardItem[]): Promise<ReadText[]> {
    return this.#notes.readAt === 'end-of-text' ? this.#wholeTexts(items) : this.#responses(items);
  }

  async #wholeTexts(items: readonly RewardItem[]): Promise<ReadText[]> {
    const { bos, chat } = this.#format;
    const texts = items.map(({ prompt, response }) => {
      const messages = promptMessages(prompt);
      if (chat) return this.#tokenizer.renderChat([...messages, { role: 'assistant', content: response }]);
      const before = this.#format.prompt(messages);
      return before + this.#format.response(messages, before, response);
    });
    const ids = await this.#tokenizer.encodeBatch(texts);
    const sequences = ids.map((own): ReadText => {
      // Plain text is closed by the end-of-text token, as in TRL. A template closes its own.
      const whole = chat ? own : this.#format.closed(own);
      const over = Math.max(0, whole.length + bos.length - this.#options.maxLength);
      const sequence = [...bos, ...whole.subarray(over)];
      const last = sequence.findLastIndex((id) => id !== this.#options.padId);
      return { ids: sequence, places: [Math.max(0, last)], truncated: over > 0 };
    });
    return withPromptLengths(sequences, items);
  }

  /** Prompts and responses are tokenised separately, as in training. */
  async #responses(items: readonly RewardItem[]): Promise<ReadText[]> {
    const process = this.#notes.type === 'process';
    const drafts = items.map((item) => {
      const messages = promptMessages(item.prompt);
      const prompt = this.#format.prompt(messages);
      const response = this.#notes.stripThinking ? stripThinking(item.response) : item.response;
      return {
        prompt,
        responses: process ? this.#steps(item.steps ?? response) : [this.#format.response(messages, prompt, response)],
      };
    });
    const ids = await this.#tokenizer.encodeBatch(drafts.flatMap(({ prompt, responses }) => [prompt, ...responses]));
    let at = 0;
    return drafts.map(({ responses }) => {
      const prompt = ids[at++] as Int32Array;
      const parts = ids.slice(at, at + responses.length);
      at += responses.length;
      const closed = process ? parts : parts.map((part) => this.#format.closed(part));
      return this.#joined(prompt, closed);
    });
  }

  #steps(response: string | readonly string[]): string[] {
    const { stepSeparator } = this.#notes;
    const steps =
      typeof response === 'string' ? response.split(stepSeparator).filter((step) => step.trim() !== '') : response;
    return (steps.length > 0 ? steps : ['']).map((step, index) => this.#format.step(step, index, stepSeparator));
  }

  #joined(prompt: Int32Array, responses: Int32Array[]): ReadText {
    const { bos } = this.#format;
    const responseTokens = responses.reduce((sum, response) => sum + response.length, 0);
    const room = Math.max(0, this.#options.maxLength - bos.length - responseTokens);
    const start = [...bos, ...(prompt.length > room ? prompt.subarray(prompt.length - room) : prompt)];
    const ids = [...start];
    const places: number[] = [];
    for (const response of responses) {
      ids.push(...response);
      if (response.length > 0) places.push(ids.length - 1);
    }
    // A response longer than the model's context keeps its end, where it is scored.
    const over = Math.max(0, ids.length - this.#options.maxLength);
    const kept = places.map((place) => place - over).filter((place) => place >= 0);
    // A process model is scored at the end of each step, any other model at the last token.
    return {
      ids: ids.slice(over),
      places: kept.length > 0 ? kept : [ids.length - over - 1],
      promptLength: Math.max(0, start.length - over),
      truncated: bos.length + prompt.length + responseTokens > this.#options.maxLength,
    };
  }
}

/** If whole texts are tokenised at once, the prompt is the common beginning of its responses' texts. */
function withPromptLengths(sequences: readonly ReadText[], items: readonly RewardItem[]): ReadText[] {
  const prompts = items.map(({ prompt }) => JSON.stringify(prompt));
  const groups = Map.groupBy(sequences.keys(), (i) => prompts[i]);
  const lengths = new Map(
    [...groups].map(([prompt, places]) => [prompt, commonLength(places.map((i) => sequences[i]?.ids ?? []))]),
  );
  return sequences.map((sequence, i) => ({ ...sequence, promptLength: lengths.get(prompts[i]) ?? 0 }));
}

/** The number of leading tokens that are the same in all lists. */
function commonLength([first = [], ...others]: readonly ArrayLike<number>[]): number {
  let length = first.length;
  for (const other of others) {
    let same = 0;
    while (same < length && first[same] === other[same]) same++;
    length = same;
  }
  return length;
}
