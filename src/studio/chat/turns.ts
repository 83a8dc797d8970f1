/**
 * One turn of the chat: the same messages to one model or to both, answered as events. A blind turn shows the models in
 * random order and tells neither names nor scores before the vote.
 */
import { z } from 'zod';
import type { RewardScorer } from '../../rewards/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { ServedModel } from '../../serve/index.ts';
import { ChatFormat, type Message, ThinkingParts } from '../../text/index.ts';
import type { ChatEvents, ChatSampling } from '../api/chat.ts';
import type { EventStream } from '../http/events.ts';
import { type Asked, parsed } from '../http/router.ts';
import type { ChatModels, Slot } from './models.ts';

const message = z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string().max(400_000) });
const sampling = z
  .object({
    temperature: z.number().min(0).max(2),
    topP: z.number().gt(0).max(1),
    topK: z.number().int().min(0),
    minP: z.number().min(0).max(1),
    maxTokens: z.number().int().min(1).max(32_768),
    seed: z.number().int().min(0),
    thinking: z.boolean(),
  })
  .partial();
export const turnName = z.string().regex(/^[\w-]{1,64}$/);
const sendRequest = z.object({
  turn: turnName,
  messages: z.array(message).min(1).max(2000),
  sampling: sampling.optional(),
  blind: z.boolean().default(false),
  slot: z.number().int().min(0).max(1).optional(),
});

/** As `attune chat` has them. */
const usual = { temperature: 0.7, maxTokens: 512, seed: 42 };

export interface SideReply {
  /** As it was asked for. */
  model: string;
  text: string;
  score?: number;
}

/** A turn that was answered: what a vote or a rating refers to. */
export interface Turn {
  messages: readonly Message[];
  sides: (SideReply | undefined)[];
  /** Slot of each side. */
  order: number[];
  blind: boolean;
  settings: { temperature: number; maxTokens: number; seed: number };
  voted: boolean;
}

const mostTurns = 500;

export class Turns {
  readonly #models: ChatModels;
  readonly #turns = new Map<string, Turn>();
  readonly #running = new Map<string, AbortController>();

  constructor(models: ChatModels) {
    this.#models = models;
  }

  find(name: string): Turn {
    const turn = this.#turns.get(name);
    if (turn === undefined) throw new ApiError(404, 'There is no such turn in this chat.', { code: 'not_found' });
    return turn;
  }

  stop(name: string): boolean {
    const running = this.#running.get(name);
    running?.abort();
    return running !== undefined;
  }

  async send(asked: Asked): Promise<void> {
    const request = parsed(sendRequest, asked.body);
    const { slots } = this.#models;
    if (slots.length === 0) throw new ApiError(409, 'No model is loaded: choose one first.', { code: 'conflict' });
    if (this.#running.has(request.turn))
      throw new ApiError(409, 'This turn is being answered already.', { code: 'conflict' });
    const turn = this.#begin(request, slots.length);
    const sides = turn.order.flatMap((slot, side) =>
      request.slot === undefined || request.slot === side ? [{ side, slot: slots[slot] as Slot }] : [],
    );
    const stop = new AbortController();
    asked.gone.addEventListener('abort', () => stop.abort());
    this.#running.set(request.turn, stop);
    const stream = asked.stream();
    try {
      await Promise.all(sides.map(({ side, slot }) => this.#answer(stream, turn, side, slot, request, stop.signal)));
      await stream.send('done', {} satisfies ChatEvents['done']);
    } finally {
      this.#running.delete(request.turn);
      stream.end();
    }
  }

  /** Regenerating one side keeps the other and the order. */
  #begin(request: z.output<typeof sendRequest>, slots: number): Turn {
    const known = this.#turns.get(request.turn);
    if (request.slot !== undefined && known !== undefined && known.order.length === slots) return known;
    const order = Array.from({ length: slots }, (_, i) => i);
    if (request.blind && Math.random() < 0.5) order.reverse();
    const { temperature, maxTokens, seed } = { ...usual, ...request.sampling };
    const turn: Turn = {
      messages: request.messages,
      sides: order.map(() => undefined),
      order,
      voted: false,
      blind: request.blind && slots === 2,
      settings: { temperature, maxTokens, seed },
    };
    this.#turns.set(request.turn, turn);
    for (const oldest of this.#turns.keys()) {
      if (this.#turns.size <= mostTurns) break;
      this.#turns.delete(oldest);
    }
    return turn;
  }

  async #answer(
    stream: EventStream,
    turn: Turn,
    side: number,
    { model, served }: Slot,
    request: z.output<typeof sendRequest>,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const begin: ChatEvents['begin'] = { side, ...(turn.blind ? {} : { name: model }) };
      await stream.send('begin', begin);
      const reply = await speak(served, request.messages, { ...usual, ...request.sampling }, signal, (text, thinking) =>
        stream.send('token', { side, text, thinking } satisfies ChatEvents['token']),
      );
      const score = await scoreOf(this.#models.scorer, request.messages, reply.text);
      turn.sides[side] = { model, text: reply.text, ...(score === undefined ? {} : { score }) };
      const end: ChatEvents['end'] = { side, ...reply, ...(score === undefined || turn.blind ? {} : { score }) };
      await stream.send('end', end);
    } catch (error) {
      await stream.send('failure', { side, message: (error as Error).message } satisfies ChatEvents['failure']);
    }
  }
}

/** Streams one reply; its text is whole at the end. */
async function speak(
  served: ServedModel,
  messages: readonly Message[],
  settings: ChatSampling & typeof usual,
  signal: AbortSignal,
  onPart: (text: string, thinking: boolean) => Promise<void>,
): Promise<Omit<ChatEvents['end'], 'side' | 'score'>> {
  const { tokenizer, sampler, maxTokens, adapter } = served;
  const variables =
    settings.thinking === undefined ? {} : { templateVariables: { enable_thinking: settings.thinking } };
  const format = new ChatFormat(tokenizer, variables);
  const prompt = [...format.bos, ...tokenizer.encode(format.prompt(messages))];
  const room = maxTokens - prompt.length;
  if (room < 1)
    throw new ApiError(400, `The conversation has ${prompt.length} tokens, the model takes ${maxTokens}: begin anew.`);
  const started = performance.now();
  const { temperature, seed, topP = 1, topK = 0, minP = 0 } = settings;
  const submission = sampler.submit({
    prompt,
    temperature,
    seed,
    topP,
    topK,
    minP,
    adapter,
    signal,
    maxNewTokens: Math.min(room, settings.maxTokens),
    stopIds: tokenizer.eosIds,
  });
  const decoder = tokenizer.stream({ skipSpecialTokens: true });
  const thinking = new ThinkingParts();
  let text = '';
  let tokens = 0;
  const push = async (piece: string, parts: ReturnType<ThinkingParts['push']>) => {
    text += piece;
    for (const part of parts) await onPart(part.text, part.thinking);
  };
  for await (const { id } of submission) {
    tokens++;
    const piece = decoder.push(id);
    if (piece !== '') await push(piece, thinking.push(piece));
  }
  const rest = decoder.flush();
  await push(rest, [...(rest === '' ? [] : thinking.push(rest)), ...thinking.flush()]);
  const [response] = await submission.responses;
  const seconds = (performance.now() - started) / 1000;
  const finish = response?.finish === 'length' ? 'length' : response?.finish === 'stop' ? 'stop' : 'stopped';
  return { text, tokens, tokensPerSecond: tokens / Math.max(seconds, 1e-9), finish };
}

async function scoreOf(
  scorer: RewardScorer | undefined,
  prompt: readonly Message[],
  response: string,
): Promise<number | undefined> {
  if (scorer === undefined || response === '') return undefined;
  const [score] = await scorer.score([{ prompt, response }]);
  return score;
}
