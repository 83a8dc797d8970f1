/**
 * Finds the assistant's turns in a rendered chat. Templates do not mark them, so they are found by rendering.
 *
 * A turn starts where the rendering of the turns before it, with the generation prompt, ends. It ends where this
 * rendering and that of the same chat with another response become equal again. This also works for templates that trim
 * responses or drop the thinking of earlier turns (Qwen3), where comparing prefixes would fail.
 */
import { AttuneError, UserError } from '../../errors.ts';
import type { Message } from './chat.ts';

export interface Span {
  start: number;
  end: number;
}

/** A text that occurs in no chat and that no template trims or takes for thinking. */
const PROBE = 'attune\u2063probe\u2063reply';

type Render = (messages: readonly Message[], addGenerationPrompt: boolean) => string;

/**
 * The spans of `text` = render(messages), one per assistant message, each including its end-of-turn token.
 * `specialTokenEnd` gives the end of the first special token in a string, or -1.
 */
export function assistantSpans(
  text: string,
  messages: readonly Message[],
  render: Render,
  specialTokenEnd: (text: string) => number,
): Span[] {
  const spans: Span[] = [];
  messages.forEach((message, i) => {
    if (message.role !== 'assistant') return;
    const probe = probeTurn(text, messages, i, render);
    const prompt = attempt(() => render(messages.slice(0, i), true));
    const start =
      prompt !== undefined && text.startsWith(prompt)
        ? prompt.length
        : (probe.contentStart ?? headerEnd(text, messages, i, prompt, render));
    if (start === undefined) throw impossible(i, 'what it writes before the response depends on the response itself');
    const contentEnd = text.length - probe.after.length;
    const specialEnd = specialTokenEnd(probe.tail);
    const end = contentEnd + (specialEnd < 0 ? probe.tail.length : specialEnd);
    // Not contentEnd: a turn of tool calls alone has no content; its text is all in the tail.
    if (end < start || start < (spans.at(-1)?.end ?? 0))
      throw impossible(i, 'the text before and after the response overlap');
    spans.push({ start, end });
  });
  return spans;
}

/** The text that a template writes right after the last message's content, usually the end-of-turn token. */
export function replyTail(messages: readonly Message[], render: Render): string {
  const probed = render(withProbe(messages, messages.length - 1), false);
  const place = probed.lastIndexOf(PROBE);
  return place < 0 ? '' : probed.slice(place + PROBE.length);
}

/**
 * Undefined if the template refuses, as for an empty chat or a lone system message; the other renderings are then
 * enough.
 */
function attempt(render: () => string): string | undefined {
  try {
    return render();
  } catch (error) {
    if (error instanceof AttuneError) return undefined;
    throw error;
  }
}

/**
 * The generation prompt may open (and close) a thinking block although the response has its own. Then the turn's header
 * is what prompt and chat have in common, up to the first words of the response.
 */
function headerEnd(
  text: string,
  messages: readonly Message[],
  i: number,
  prompt: string | undefined,
  render: Render,
): number | undefined {
  const earlier = attempt(() => render(messages.slice(0, i), false));
  if (prompt === undefined || earlier === undefined || !text.startsWith(earlier)) return undefined;
  const shared = sharedPrefix(text, prompt);
  if (shared <= earlier.length) return undefined;
  const response = (messages[i]?.content ?? '').trimStart();
  const opening = response.startsWith('<think>') ? '<think>' : response.slice(0, 16);
  const place = text.indexOf(opening, earlier.length);
  return place < 0 ? undefined : Math.min(shared, place);
}

function sharedPrefix(a: string, b: string): number {
  let shared = 0;
  while (shared < a.length && a[shared] === b[shared]) shared++;
  return shared;
}

function probeTurn(text: string, messages: readonly Message[], i: number, render: Render) {
  const probed = render(withProbe(messages, i), false);
  const place = probed.indexOf(PROBE);
  if (place < 0) throw impossible(i, 'it leaves the response out');
  if (probed.indexOf(PROBE, place + 1) >= 0) throw impossible(i, 'it writes the response more than once');
  const before = probed.slice(0, place);
  const after = probed.slice(place + PROBE.length);
  if (!text.endsWith(after)) throw impossible(i, 'what it writes after the response depends on the response itself');
  const own = i === messages.length - 1 ? after : replyTail(messages.slice(0, i + 1), render);
  const tail = after.slice(0, sharedPrefix(own, after));
  return { contentStart: text.startsWith(before) ? before.length : undefined, after, tail };
}

function withProbe(messages: readonly Message[], i: number): Message[] {
  return messages.map((message, k) => (k === i ? { ...message, content: PROBE } : message));
}

function impossible(i: number, reason: string): UserError {
  return new UserError(
    `Cannot tell which tokens of messages[${i}] are the assistant's: with this chat template ${reason}. ` +
      'Train on prompt/completion pairs, or choose another template (plainChatTemplate).',
  );
}
