/** A conversation: its turns and settings, without a terminal. */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { UserError } from '../../errors.ts';
import type { LanguageModel, TextResponse } from '../../models/index.ts';
import type { Message } from '../../text/index.ts';

/** Settings of a response. */
export interface ChatSettings {
  system?: string;
  /** 0 (greedy) to 1.5. */
  temperature: number;
  /** 64 to 2048. */
  maxTokens: number;
  seed: number;
}

export class Conversation {
  readonly settings: ChatSettings;
  #turns: Message[] = [];

  constructor(settings: ChatSettings) {
    this.settings = settings;
  }

  /** All messages, the system message first. */
  get messages(): Message[] {
    const { system } = this.settings;
    return [
      ...(system === undefined || system === '' ? [] : [{ role: 'system' as const, content: system }]),
      ...this.#turns,
    ];
  }
  get turns(): readonly Message[] {
    return this.#turns;
  }

  ask(content: string): void {
    this.#turns.push({ role: 'user', content });
  }

  answer(content: string): void {
    this.#turns.push({ role: 'assistant', content });
  }

  /** Removes the last response, so that the question is asked again; false if there is none. */
  retry(): boolean {
    if (this.#turns.at(-1)?.role === 'assistant') this.#turns.pop();
    return this.#turns.at(-1)?.role === 'user';
  }

  /** Removes a question that got no response. */
  unask(): void {
    if (this.#turns.at(-1)?.role === 'user') this.#turns.pop();
  }

  clear(): void {
    this.#turns = [];
  }

  save(path: string): void {
    const { system: _, ...settings } = this.settings;
    try {
      writeFileSync(path, `${JSON.stringify({ messages: this.messages, settings }, null, 2)}\n`, { flag: 'wx' });
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === 'EEXIST') throw new UserError(`${path} exists already: name another file.`);
      if (code === 'ENOENT') throw new UserError(`${path} cannot be written: there is no such folder.`);
      throw new UserError(`${path} cannot be written: ${message}`);
    }
  }

  load(path: string): void {
    const messages = (jsonIn(path) as { messages?: unknown } | null)?.messages;
    if (!Array.isArray(messages) || !messages.every(isMessage))
      throw new UserError(`${path} is no conversation: it has no list of messages with role and content.`);
    const [first] = messages;
    // Also where it has none: the conversation goes on as it was, not under the instructions of this one.
    this.settings.system = first?.role === 'system' ? first.content : undefined;
    this.#turns = messages.filter(({ role }) => role !== 'system');
  }
}

function jsonIn(path: string): unknown {
  // A device or a pipe could be read for ever.
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile();
  if (isFile !== true) throw new UserError(`${path}: there is no such file.`);
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UserError(`${path} cannot be read as a conversation: ${(error as Error).message}`);
  }
}

function isMessage(value: unknown): value is Message {
  const { role, content } = (value ?? {}) as Partial<Message>;
  return typeof role === 'string' && typeof content === 'string';
}

/**
 * Streams a response of a model to the conversation as it stands; the same seed gives the same response. It ends with the positions
 * that the model reads: past them models are untrained, and some fail.
 */
export async function* streamResponse(
  model: LanguageModel,
  { messages, settings }: Conversation,
  signal: AbortSignal,
): AsyncGenerator<string, TextResponse, void> {
  const { temperature, maxTokens, seed } = settings;
  const { maxPositions } = model.model.decoder.spec;
  const room = maxPositions - model.promptIds({ messages }).length;
  if (room < 1)
    throw new UserError(
      `The conversation has ${maxPositions - room} tokens; the model reads ${maxPositions} positions. /clear begins anew.`,
    );
  return yield* model.stream({ messages, temperature, seed, maxNewTokens: Math.min(maxTokens, room), signal });
}
