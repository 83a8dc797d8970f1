/** Routes of the chat: load, send, stop, vote, rate. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { appendLine } from '../../line-file.ts';
import { recordVote, tally, tiesFile, voter } from '../../rewards/votes.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { ChatRateAnswer, ChatVoteAnswer, VotesAnswer } from '../api/chat.ts';
import type { Root } from '../http/folder.ts';
import { get, parsed, post, type Route } from '../http/router.ts';
import { shownHere } from '../http/shown.ts';
import type { ChatModels } from './models.ts';
import { type Turns, turnName } from './turns.ts';

const loadRequest = z.object({
  slots: z.array(z.string().min(1).max(1000)).max(2),
  rewardModel: z.string().min(1).max(1000).optional(),
});
const turnRequest = z.object({ turn: turnName });
const voteRequest = turnRequest.extend({
  choice: z.union([z.literal(1), z.literal(2), z.literal('='), z.literal('skip')]),
});
const rateRequest = turnRequest.extend({ side: z.number().int().min(0).max(1), good: z.boolean() });

export function chatRoutes(root: Root, models: ChatModels, turns: Turns): Route[] {
  const votes = join(root.path, 'votes.jsonl');
  const thumbs = join(root.path, 'thumbs.jsonl');
  return [
    get('/api/chat/state', () => models.state(shownHere(votes))),
    post('/api/chat/load', ({ body }) => {
      const { slots, rewardModel } = parsed(loadRequest, body);
      return models.load(slots, rewardModel);
    }),
    post('/api/chat/send', (asked) => turns.send(asked)),
    post('/api/chat/stop', ({ body }) => ({ stopped: turns.stop(parsed(turnRequest, body).turn) })),
    post('/api/chat/vote', ({ body }) => vote(votes, models, turns, body)),
    get('/api/chat/votes', () => votesAnswer(votes, models)),
    post('/api/chat/rate', ({ body }) => rate(thumbs, turns, body)),
  ];
}

/** The vote goes to the preference file as in `attune chat`; then names and scores are told. */
function vote(path: string, models: ChatModels, turns: Turns, body: unknown): ChatVoteAnswer {
  const { turn: name, choice } = parsed(voteRequest, body);
  const turn = turns.find(name);
  const [first, second] = turn.sides;
  if (first === undefined || second === undefined)
    throw new ApiError(409, 'A vote needs two replies that are done.', { code: 'conflict' });
  if (turn.voted) throw new ApiError(409, 'This turn has its vote already.', { code: 'conflict' });
  if (choice !== 'skip')
    recordVote(path, {
      prompt: turn.messages,
      responses: [first.text, second.text],
      models: [first.model, second.model],
      winner: choice === '=' ? undefined : choice === 1 ? 0 : 1,
      settings: turn.settings,
    });
  turn.voted = true;
  return {
    models: [first.model, second.model],
    ...(first.score === undefined || second.score === undefined ? {} : { scores: [first.score, second.score] }),
    votes: votesAnswer(path, models),
  };
}

function votesAnswer(path: string, { slots }: ChatModels): VotesAnswer {
  const total = lines(path) + lines(tiesFile(path));
  const [first, second] = slots;
  if (first === undefined || second === undefined) return { path: shownHere(path), total };
  const pair: [string, string] = [first.model, second.model];
  return { path: shownHere(path), total, models: pair, ...tally(path, pair) };
}

/** A thumb on one reply: a row that `train preference --loss kto` reads. */
function rate(path: string, turns: Turns, body: unknown): ChatRateAnswer {
  const { turn: name, side, good } = parsed(rateRequest, body);
  const turn = turns.find(name);
  const reply = turn.sides[side];
  if (reply === undefined) throw new ApiError(409, 'There is no reply to rate yet.', { code: 'conflict' });
  const about = { model: reply.model, voter: voter(), time: new Date().toISOString() };
  const row = { prompt: turn.messages, completion: reply.text, label: good, ...about };
  appendLine(path, row);
  return { path: shownHere(path), total: lines(path) };
}

const lines = (path: string) =>
  existsSync(path)
    ? readFileSync(path, 'utf8')
        .split('\n')
        .filter((line) => line.trim() !== '').length
    : 0;
