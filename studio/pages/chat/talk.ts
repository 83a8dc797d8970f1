/** The conversation of this tab: sending, stopping, voting, rating. It outlives a reload. */
import { computed, type Signal } from '@preact/signals';
import type {
  ChatRateAnswer,
  ChatSampling,
  ChatSendRequest,
  ChatVoteAnswer,
  ChatVoteRequest,
  VotesAnswer,
} from '../../../src/studio/api.ts';
import { kept } from '../../app/kept.ts';
import { toastFailure } from '../../app/toasts.ts';
import { eventsOf } from '../../wire/events.ts';
import { post, send } from '../../wire/requests.ts';
import { after, messagesFor, newReply, settled, type Turn } from './conversation.ts';

export const turns: Signal<readonly Turn[]> = kept<readonly Turn[]>('chat-turns', []);
turns.value = turns.peek().map(settled);
export const system = kept('chat-system', '');
export const sampling = kept<ChatSampling>('chat-sampling', { temperature: 0.7, topP: 1, maxTokens: 512 });
export const blind = kept('chat-blind', true);
export const streaming = computed(() =>
  turns.value.some(({ replies }) => replies.some(({ state }) => state === 'streaming')),
);

const replace = (turn: Turn) => {
  turns.value = turns.peek().map((each) => (each.id === turn.id ? turn : each));
};

/** Asks the loaded models. `from` turns before it are kept: a regenerated or edited turn replaces those after. */
export async function ask(prompt: string, sides: number, from = turns.peek().length): Promise<void> {
  const before = turns.peek().slice(0, from);
  let turn: Turn = {
    id: crypto.randomUUID(),
    prompt,
    blind: sides === 2 && blind.peek(),
    replies: Array.from({ length: sides }, newReply),
  };
  turns.value = [...before, turn];
  const request: ChatSendRequest = {
    turn: turn.id,
    messages: messagesFor(before, system.peek(), prompt),
    sampling: sampling.peek(),
    blind: turn.blind,
  };
  try {
    for await (const { event, data } of eventsOf(await send('chat/send', request))) {
      turn = after(turn, event, data);
      replace(turn);
    }
  } catch (error) {
    const message = (error as Error).message;
    turn = {
      ...turn,
      replies: turn.replies.map((reply) =>
        reply.state === 'streaming' ? { ...reply, state: 'failed', error: message } : reply,
      ),
    };
  }
  replace(settled(turn));
}

export async function stop(): Promise<void> {
  const turn = turns.peek().at(-1);
  if (!turn || !streaming.peek()) return;
  try {
    await post('chat/stop', { turn: turn.id });
  } catch (error) {
    toastFailure(error);
  }
}

/** Names and scores are told only with the vote. */
export async function vote(turn: Turn, choice: ChatVoteRequest['choice']): Promise<VotesAnswer | undefined> {
  if (turn.vote !== undefined) return undefined;
  try {
    const answer = await post<ChatVoteAnswer>('chat/vote', { turn: turn.id, choice });
    replace({
      ...turn,
      vote: choice,
      replies: turn.replies.map((reply, i) => ({
        ...reply,
        name: answer.models[i] ?? reply.name,
        score: answer.scores?.[i] ?? reply.score,
      })),
    });
    return answer.votes;
  } catch (error) {
    toastFailure(error);
    return undefined;
  }
}

export async function rate(turn: Turn, side: number, good: boolean): Promise<ChatRateAnswer | undefined> {
  try {
    const answer = await post<ChatRateAnswer>('chat/rate', { turn: turn.id, side, good });
    replace({ ...turn, replies: turn.replies.map((reply, i) => (i === side ? { ...reply, good } : reply)) });
    return answer;
  } catch (error) {
    toastFailure(error);
    return undefined;
  }
}
