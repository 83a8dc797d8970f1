/** The loop of a chat with one model or with two: questions in, responses out, commands between. */

import { AttuneError, UserError } from '../../errors.ts';
import type { LanguageModel, TextResponse } from '../../models/index.ts';
import { Random } from '../../random.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { describeTally, isSame, recordVote, tally } from '../../rewards/votes.ts';
import { counted } from '../../spelling.ts';
import { ThinkingParts } from '../../text/chat/thinking-parts.ts';
import type { Conversation } from './conversation.ts';
import { streamResponse } from './conversation.ts';
import type { Screen } from './screen.ts';
import { changeSetting, chatCommands, isCommand, parseCommand } from './settings.ts';

export interface ChatModel {
  name: string;
  model: LanguageModel;
}

export interface ChatOptions {
  models: readonly [ChatModel] | readonly [ChatModel, ChatModel];
  conversation: Conversation;
  screen: Screen;
  scorer?: RewardScorer;
  /** The file of votes. */
  votes: string;
}

/** How many lines failed. */
export interface ChatFailures {
  messages: number;
  /** Commands that there are not, or that could not be carried out. */
  commands: number;
}

/** Chats until the end of the input. */
export async function chat(options: ChatOptions): Promise<ChatFailures> {
  const { screen, conversation, models } = options;
  if (screen.terminal) {
    const who = models.length === 1 ? models[0].name : 'two models, blind';
    screen.note(`${who}. /help lists the commands; a line that ends in \\ goes on, """ begins and ends several lines.`);
  }
  for (const failed: ChatFailures = { messages: 0, commands: 0 }; ; ) {
    const text = await screen.ask('you> ');
    if (text === undefined) return failed;
    if (text.trim() === '') continue;
    try {
      const command = parseCommand(text);
      if (command?.name === '/exit') return failed;
      if (command === undefined) {
        conversation.ask(text.replace(/^\/\//, '/'));
        await answer(options);
      } else await run(options, command.name, command.rest);
    } catch (error) {
      if (!(error instanceof AttuneError) && !isFileError(error)) throw error;
      screen.failure((error as Error).message);
      failed[isCommand(text) && !asksAgain(text) ? 'commands' : 'messages']++;
    }
  }
}

const asksAgain = (text: string): boolean => text.trim() === '/retry';
const isFileError = (error: unknown): boolean => error instanceof Error && 'code' in error;

async function run(options: ChatOptions, name: string, rest: string): Promise<void> {
  const { conversation, screen, models, votes } = options;
  if (name === '/help')
    for (const [usage, what] of Object.entries(chatCommands)) screen.note(`${usage.padEnd(16)} ${what}`);
  else if (name === '/clear') conversation.clear();
  else if (name === '/retry') {
    conversation.settings.seed++;
    if (conversation.retry()) await answer(options);
    else screen.note('There is no question to ask again.');
  } else if (name === '/save' || name === '/load') {
    if (rest === '') throw new UserError(`${name} takes a file.`);
    if (name === '/save') conversation.save(rest);
    else conversation.load(rest);
    screen.note(`${name === '/save' ? 'saved to' : 'loaded from'} ${rest}`);
  } else if (name === '/score') await scoreLast(options);
  else if (name === '/results') {
    if (models.length === 1) screen.note('Votes are between two models: attune chat MODEL MODEL.');
    else screen.note(describeTally(tally(votes, [models[0].name, models[1].name]), [models[0].name, models[1].name]));
  } else screen.note(changeSetting(conversation.settings, name, rest));
}

async function answer(options: ChatOptions): Promise<void> {
  const { models, conversation } = options;
  try {
    if (models.length === 1) await answerAlone(options, models[0]);
    else await answerBlind(options, models);
  } catch (error) {
    // Left in the conversation, a question that cannot be answered would make every later one fail.
    conversation.unask();
    throw error;
  }
}

async function answerAlone(options: ChatOptions, { model }: ChatModel): Promise<void> {
  const { conversation, screen, scorer } = options;
  const written = await show(options, model);
  if (written.finish === 'cancelled' && written.text === '') {
    conversation.unask();
    return;
  }
  conversation.answer(written.text);
  const about = [`${counted(written.ids.length, 'token')}, ${Math.round(written.ids.length / written.seconds)}/s`];
  if (written.finish === 'length')
    about.push(written.ids.length < conversation.settings.maxTokens ? 'the model reads no more' : 'cut at /max-tokens');
  if (written.finish === 'cancelled') about.push('stopped');
  if (scorer !== undefined) about.push(`score ${(await scoreOf(scorer, conversation)).toFixed(3)}`);
  screen.note(about.join(' · '));
}

/** Both models answer in a hidden order; the conversation continues with the winning response. */
async function answerBlind(options: ChatOptions, models: readonly [ChatModel, ChatModel]): Promise<void> {
  const { conversation, screen, votes, scorer } = options;
  const prompt = conversation.messages;
  const order = new Random(Date.now(), Math.random()).shuffle([0, 1]) as [0 | 1, 0 | 1];
  const shown: TextResponse[] = [];
  for (const [place, which] of order.entries()) {
    screen.note(`—— ${place + 1} ——`);
    const written = await show(options, models[which].model);
    shown.push(written);
    if (written.finish === 'cancelled') {
      conversation.unask();
      return;
    }
    if (scorer !== undefined) {
      const [score = 0] = await scorer.score([{ prompt, response: written.text }]);
      screen.note(`score ${score.toFixed(3)}`);
    }
  }
  const responses = [shown[0]?.text ?? '', shown[1]?.text ?? ''] as const;
  const vote = await askVote(screen);
  if (vote === undefined) {
    conversation.answer(responses[0]);
    return;
  }
  const named = [models[order[0]].name, models[order[1]].name] as const;
  const file = recordVote(votes, {
    prompt,
    responses,
    models: named,
    winner: vote === 'tie' ? undefined : vote,
    settings: { ...conversation.settings },
  });
  conversation.answer(responses[vote === 1 ? 1 : 0]);
  const same = vote !== 'tie' && isSame(responses) ? 'both wrote the same, so it is a tie: ' : '';
  screen.note(`${same}kept in ${file}; /results shows the tally`);
}

/** 1 or 2 for the better response, = for a tie, s to skip; undefined without a vote. */
async function askVote(screen: Screen): Promise<0 | 1 | 'tie' | undefined> {
  for (;;) {
    const given = (await screen.ask('better? 1, 2, = or s> '))?.trim().toLowerCase();
    if (given === '1') return 0;
    if (given === '2') return 1;
    if (given === '=') return 'tie';
    if (given === undefined || given === 's') return undefined;
    screen.note('1 and 2 name the better response, = is a tie, s skips.');
  }
}

/** Streams a response to the screen; Ctrl-C ends it. */
async function show(
  { screen, conversation }: ChatOptions,
  model: LanguageModel,
): Promise<TextResponse & { seconds: number }> {
  const stopped = new AbortController();
  screen.onInterrupt = () => {
    stopped.abort();
    return true;
  };
  const started = performance.now();
  const parts = new ThinkingParts();
  try {
    const pieces = streamResponse(model, conversation, stopped.signal);
    for (let next = await pieces.next(); ; next = await pieces.next()) {
      if (next.done) {
        for (const part of parts.flush()) screen.part(part);
        screen.line();
        return { ...next.value, seconds: Math.max(1e-3, (performance.now() - started) / 1000) };
      }
      for (const part of parts.push(next.value)) screen.part(part);
    }
  } finally {
    screen.onInterrupt = () => false;
  }
}

async function scoreLast({ scorer, conversation, screen }: ChatOptions): Promise<void> {
  if (scorer === undefined) screen.note('There is no reward model: start with --reward-model FOLDER.');
  else if (conversation.turns.at(-1)?.role !== 'assistant') screen.note('There is no response to score.');
  else screen.note(`score ${(await scoreOf(scorer, conversation)).toFixed(3)}`);
}

async function scoreOf(scorer: RewardScorer, conversation: Conversation): Promise<number> {
  const response = conversation.turns.at(-1)?.content ?? '';
  const [score = Number.NaN] = await scorer.score([{ prompt: conversation.messages.slice(0, -1), response }]);
  return score;
}
