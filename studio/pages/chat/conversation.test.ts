import { describe, expect, it } from 'vitest';
import { after, continued, messagesFor, newReply, settled, type Turn } from './conversation.ts';

const turn = (prompt: string, texts: string[], more: Partial<Turn> = {}): Turn => ({
  id: prompt,
  prompt,
  blind: false,
  replies: texts.map((text) => ({ ...newReply(), text, state: 'done' })),
  ...more,
});

describe('a conversation', () => {
  it('goes on from the preferred reply', () => {
    expect(continued(turn('q', ['a', 'b'], { vote: 2 }))?.text).toBe('b');
    expect(continued(turn('q', ['a', 'b'], { vote: '=' }))?.text).toBe('a');
    expect(continued(turn('q', ['', 'b']))?.text).toBe('b');
  });

  it('is sent with its system prompt, without turns that failed', () =>
    expect(messagesFor([turn('one', ['1']), turn('two', [''])], 'be short', 'three')).toEqual([
      { role: 'system', content: 'be short' },
      { role: 'user', content: 'one' },
      { role: 'assistant', content: '1' },
      { role: 'user', content: 'three' },
    ]));

  it('follows the events of both sides', () => {
    let now: Turn = { id: 't', prompt: 'q', blind: true, replies: [newReply(), newReply()] };
    for (const [event, data] of [
      ['token', { side: 0, text: 'hm', thinking: true }],
      ['token', { side: 0, text: 'He', thinking: false }],
      ['token', { side: 1, text: 'No', thinking: false }],
      ['token', { side: 0, text: 'llo', thinking: false }],
      ['end', { side: 0, text: '<think>hm</think>Hello', tokens: 3, tokensPerSecond: 9, finish: 'stop', score: 0.5 }],
      ['failure', { side: 1, message: 'out of memory' }],
      ['done', {}],
    ] as const)
      now = after(now, event, data);
    expect(now.replies[0]).toMatchObject({ thinking: 'hm', text: 'Hello', state: 'done', finish: 'stop', score: 0.5 });
    expect(now.replies[1]).toMatchObject({ text: 'No', state: 'failed', error: 'out of memory' });
  });

  it('that was cut off is over', () =>
    expect(settled({ ...turn('q', ['x']), replies: [newReply()] }).replies[0]).toMatchObject({
      state: 'done',
      finish: 'stopped',
    }));
});
