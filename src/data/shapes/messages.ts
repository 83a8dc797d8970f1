/**
 * Turns prompts and responses, however they are stored, into one message list: plain strings, `{role, content}`,
 * ShareGPT's `{from, value}`, lists of content parts, JSON inside a CSV cell, and "Human: … Assistant: …" transcripts.
 */
import { suggestion } from '../../errors.ts';
import { lookup } from '../../lookup.ts';
import { isRow, kindOf } from '../sources/row.ts';
import type { Message } from './shapes.ts';

/** A fault in one row. The reader reports it with file and line. */
export class RowProblem extends Error {}

const roles: Record<string, Message['role']> = {
  system: 'system',
  developer: 'system',
  user: 'user',
  human: 'user',
  prompter: 'user',
  assistant: 'assistant',
  gpt: 'assistant',
  chatgpt: 'assistant',
  model: 'assistant',
  bot: 'assistant',
  tool: 'tool',
  function: 'tool',
  function_response: 'tool',
  observation: 'tool',
};

/** A message list from the value of a column; a bare string is a user message. */
export function toMessages(value: unknown, column: string): Message[] {
  if (typeof value === 'string') {
    const listed = /^\s*\[\s*\{/.test(value) ? parsedList(value) : undefined;
    if (listed !== undefined) return toMessages(listed, column);
    return isTranscript(value) ? transcriptMessages(value) : [{ role: 'user', content: value }];
  }
  if (Array.isArray(value)) return value.map((item) => toMessage(item, column));
  if (isRow(value)) return [toMessage(value, column)];
  throw new RowProblem(`"${column}" must be text or a list of messages, this is a ${kindOf(value)}`);
}

function toMessage(value: unknown, column: string): Message {
  if (!isRow(value)) throw new RowProblem(`"${column}" must hold messages, this is a ${kindOf(value)}`);
  const role = value.role ?? value.from;
  const known = typeof role === 'string' ? lookup(roles, role.toLowerCase()) : undefined;
  if (known === undefined) {
    const hint = typeof role === 'string' ? suggestion(role, Object.keys(roles)) : '';
    throw new RowProblem(
      `a message in "${column}" has the role ${JSON.stringify(role) ?? 'null'}${hint === '' ? '' : `.${hint}`}`,
    );
  }
  return { role: known, content: toText(value.content ?? value.value ?? '', column) };
}

/** Text, also from a list of content parts. */
export function toText(value: unknown, column: string): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value) && value.every((part) => isRow(part) && typeof part.text === 'string')) {
    return value.map((part) => part.text).join('');
  }
  throw new RowProblem(`"${column}" must be text, this is a ${kindOf(value)}`);
}

function parsedList(text: string): unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const turn = /(?:^|\n\n)(Human|Assistant):/g;

/** A whole dialogue in one string, as Anthropic's HH-RLHF has it. */
export function isTranscript(text: string): boolean {
  return /^\s*Human:/.test(text) && text.includes('\n\nAssistant:');
}

/**
 * The turns of a transcript. A transcript that ends in a bare "Assistant:" is a prompt; the empty last turn is omitted.
 */
export function transcriptMessages(text: string): Message[] {
  const trimmed = text.replace(/^\s+(?=Human:)/, '');
  const marks = [...trimmed.matchAll(turn)];
  const messages = marks.map((mark, index): Message => {
    const content = trimmed.slice(mark.index + mark[0].length, marks[index + 1]?.index ?? trimmed.length).trim();
    return { role: mark[1] === 'Human' ? 'user' : 'assistant', content };
  });
  if (messages.at(-1)?.role === 'assistant' && messages.at(-1)?.content === '') messages.pop();
  return messages;
}

const reply = '\n\nAssistant:';

/**
 * Splits two transcripts with a common beginning: the common prefix up to its last "Assistant:" is the prompt, the rest
 * of each is its response. Undefined if they share no such prefix.
 */
export function splitTranscripts(a: string, b: string): { prompt: Message[]; responses: [string, string] } | undefined {
  let common = 0;
  while (common < a.length && common < b.length && a[common] === b[common]) common++;
  const at = a.lastIndexOf(reply, common - reply.length);
  if (common < reply.length || at < 0) return undefined;
  const end = at + reply.length;
  return { prompt: transcriptMessages(a.slice(0, end)), responses: [a.slice(end).trim(), b.slice(end).trim()] };
}

/** How many messages two lists share at their beginning. */
export function commonMessages(a: readonly Message[], b: readonly Message[]): number {
  let count = 0;
  while (count < a.length && count < b.length) {
    const [left, right] = [a[count] as Message, b[count] as Message];
    if (left.role !== right.role || left.content !== right.content) break;
    count++;
  }
  return count;
}
