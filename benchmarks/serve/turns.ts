/** The second turn of a long conversation beside its first and beside a short prompt: the time to the first text, whole and by stages. */
import type { Model } from '../../src/models/index.ts';
import { Registry, serve } from '../../src/serve/index.ts';
import type { Tokenizer } from '../../src/text/index.ts';
import type { Reading } from '../run.ts';
import type { Crowd } from './crowd.ts';
import { messageOf } from './requests.ts';
import { Stages } from './stages.ts';

/** Conversations; the median counts. */
const TURNS = 9;
/** Short requests before: a server's JavaScript is compiled while it runs. */
const WARM_UP = 60;

/**
 * The response to each request is short: random weights write tokens whose text is split into some five tokens each when it comes
 * back, so that a long one would make the second turn read what a real model's conversation has in the cache.
 */
const ANSWER_TOKENS = 4;

type Stage = Record<string, number>;

export async function* turns(
  crowd: Crowd,
  model: Model,
  tokenizer: Tokenizer,
  options: { room: number; stages: boolean },
): AsyncIterable<Reading> {
  using registry = new Registry({ maxTokens: options.room, slots: 4 });
  registry.addLoaded('subject', model, tokenizer);
  await using server = await serve(registry, { port: 0 });
  const wanted = Math.min(4000, options.room - 256);
  const short: Stage[] = [];
  const first: Stage[] = [];
  const second: Stage[] = [];
  using stages = new Stages();
  const ask = async (messages: { role: string; content: string }[], into: Stage[]) => {
    stages.clear();
    const { sent, firstText, text } = await crowd.ask({ url: server.url, messages, maxTokens: ANSWER_TOKENS });
    await new Promise((resolve) => setTimeout(resolve, 20)); // as a reader would
    into.push(stages.take(sent, firstText));
    return text;
  };
  for (let i = 0; i < WARM_UP; i++)
    await crowd.ask({
      url: server.url,
      messages: [{ role: 'user', content: messageOf(700, i, 12) }],
      maxTokens: ANSWER_TOKENS,
    });
  for (let i = 0; i < TURNS; i++) {
    await ask([{ role: 'user', content: messageOf(500 + i, i, 12) }], short);
    const messages = [{ role: 'user', content: longText(tokenizer, wanted - 40, i) }];
    const text = await ask(messages, first);
    const reply = { role: 'assistant', content: text };
    await ask([...messages, reply, { role: 'user', content: 'And then?' }], second);
  }
  const [one, two] = [median(first, 'total'), median(second, 'total')];
  yield {
    name: `turns of ${wanted} tokens`,
    shortPromptMs: round(median(short, 'total')),
    firstTurnMs: round(one),
    secondTurnMs: round(two),
    timesSooner: round(one / two),
  };
  if (!options.stages) return;
  for (const [name, all] of Object.entries({ 'short prompt': short, 'first turn': first, 'second turn': second })) {
    const names = Object.keys(all[0] as Stage);
    yield { name: `${name}, ms`, ...Object.fromEntries(names.map((stage) => [stage, round(median(all, stage))])) };
  }
}

function longText(tokenizer: Tokenizer, tokens: number, i: number): string {
  let content = messageOf(900 + i, i, 16);
  const word = messageOf(1, i, 256);
  while (tokenizer.encode(content).length < tokens) content += ` ${word.slice(0, Math.max(8, tokens / 8))}`;
  return tokenizer.decode(tokenizer.encode(content).slice(0, tokens));
}

function median(all: readonly Stage[], stage: string): number {
  const sorted = all.map((each) => each[stage] as number).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] as number;
}
const round = (value: number): number => Number(value.toFixed(2));
