/** A conversation as plain data: what is shown, what is sent, and how the events of a reply change it. */
import type { ChatEvents, ChatMessage } from '../../../src/studio/api.ts';

export interface Reply {
  text: string;
  thinking: string;
  state: 'streaming' | 'done' | 'failed';
  finish?: ChatEvents['end']['finish'];
  tokens?: number;
  tokensPerSecond?: number;
  score?: number | undefined;
  name?: string | undefined;
  error?: string;
  /** A thumb that was given. */
  good?: boolean;
}

export interface Turn {
  /** Known to the server: stop, vote and rate refer to it. */
  id: string;
  prompt: string;
  replies: Reply[];
  blind: boolean;
  vote?: 1 | 2 | '=' | 'skip';
}

/** The reply that the conversation goes on from: the preferred one, else the first that was written. */
export function continued({ replies, vote }: Turn): Reply | undefined {
  if (vote === 1 || vote === 2) return replies[vote - 1];
  return replies.find(({ text }) => text !== '') ?? replies[0];
}

/** What is sent for a further prompt. Turns without any reply are left out, for templates that want turns to alternate. */
export function messagesFor(turns: readonly Turn[], system: string, prompt: string): ChatMessage[] {
  const before = turns.flatMap((turn): ChatMessage[] => {
    const reply = continued(turn);
    if (!reply || reply.text === '') return [];
    return [
      { role: 'user', content: turn.prompt },
      { role: 'assistant', content: reply.text },
    ];
  });
  return [
    ...(system.trim() === '' ? [] : [{ role: 'system' as const, content: system }]),
    ...before,
    { role: 'user', content: prompt },
  ];
}

export const newReply = (): Reply => ({ text: '', thinking: '', state: 'streaming' });

/** A turn after one event of its stream. */
export function after(turn: Turn, event: string, data: unknown): Turn {
  const { side } = data as { side?: number };
  if (side === undefined) return turn;
  const replies = turn.replies.map((reply, i) => (i === side ? changed(reply, event, data) : reply));
  return { ...turn, replies };
}

function changed(reply: Reply, event: string, data: unknown): Reply {
  switch (event) {
    case 'begin':
      return { ...reply, name: (data as ChatEvents['begin']).name };
    case 'token': {
      const { text, thinking } = data as ChatEvents['token'];
      return thinking ? { ...reply, thinking: reply.thinking + text } : { ...reply, text: reply.text + text };
    }
    case 'end': {
      const { text, finish, tokens, tokensPerSecond, score } = data as ChatEvents['end'];
      // The whole text has the thinking in it, which is shown folded and not sent again.
      const answer = reply.text === '' && reply.thinking === '' ? text : reply.text;
      return { ...reply, text: answer, state: 'done', finish, tokens, tokensPerSecond, score };
    }
    case 'failure':
      return { ...reply, state: 'failed', error: (data as ChatEvents['failure']).message };
    default:
      return reply;
  }
}

/** Whatever still streams was cut off: by a reload or a lost connection. */
export const settled = (turn: Turn): Turn => ({
  ...turn,
  replies: turn.replies.map((reply) =>
    reply.state === 'streaming' ? { ...reply, state: 'done', finish: 'stopped' } : reply,
  ),
});
