/**
 * Votes on two models' responses as preference data. Each vote is a row with prompt, chosen and rejected, which `attune
 * train preference` and `attune train reward` read, and with models, settings and time. Ties go to a separate file.
 */
import { existsSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { appendLine } from '../line-file.ts';
import type { Message } from '../text/index.ts';
import { wilson } from './error-analysis.ts';

export interface Vote {
  prompt: readonly Message[];
  responses: readonly [string, string];
  /** The models, in the order of the responses. */
  models: readonly [string, string];
  /** The index of the winning response; undefined for a tie. */
  winner: 0 | 1 | undefined;
  settings: { temperature: number; maxTokens: number; seed: number };
}

export const tiesFile = (path: string) => path.replace(/(\.jsonl)?$/, '.ties.jsonl');

/** Equal responses are a tie, whatever the vote: the pair teaches nothing, and its winner would be random. */
export const isSame = ([first, second]: Vote['responses']): boolean => first === second;

/** The voter's name. A user id without a name, as in containers, is named by its number. */
export function voter(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}

/** Appends a vote to a file, and returns the file's path. */
export function recordVote(path: string, vote: Vote): string {
  const { prompt, responses, models, settings } = vote;
  const winner = isSame(responses) ? undefined : vote.winner;
  const { temperature, maxTokens, seed } = settings;
  const about = {
    voter: voter(),
    time: new Date().toISOString(),
    settings: { temperature, max_tokens: maxTokens, seed },
  };
  if (winner === undefined) {
    appendLine(tiesFile(path), { prompt, responses: responses, models, ...about });
    return tiesFile(path);
  }
  const loser = winner === 0 ? 1 : 0;
  appendLine(path, {
    prompt,
    chosen: responses[winner],
    rejected: responses[loser],
    chosen_model: models[winner],
    rejected_model: models[loser],
    ...about,
  });
  return path;
}

export interface Tally {
  wins: [number, number];
  ties: number;
  /** The first model's share of the votes without ties, with its 95 % interval. */
  share?: { value: number; low: number; high: number };
}

/** Counts the votes between two models, of this and earlier sessions. */
export function tally(path: string, models: readonly [string, string]): Tally {
  const wins: [number, number] = [0, 0];
  for (const { chosen_model: chosen, rejected_model: rejected } of rows(path)) {
    if (chosen === models[0] && rejected === models[1]) wins[0]++;
    if (chosen === models[1] && rejected === models[0]) wins[1]++;
  }
  const ties = rows(tiesFile(path)).filter(
    (row) => [...((row.models as string[]) ?? [])].sort().join() === [...models].sort().join(),
  ).length;
  const decided = wins[0] + wins[1];
  if (decided === 0) return { wins, ties };
  const [low, high] = wilson(wins[0], decided);
  return { wins, ties, share: { value: wins[0] / decided, low, high } };
}

function rows(path: string): Record<string, unknown>[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line.trim() !== '');
  return lines.flatMap((line) => {
    try {
      return [JSON.parse(line) as Record<string, unknown>];
    } catch {
      return [];
    }
  });
}

export function describeTally({ wins, ties, share }: Tally, models: readonly [string, string]): string {
  const percent = (value: number) => `${Math.round(100 * value)} %`;
  const head = `${models[0]} ${wins[0]} · ${models[1]} ${wins[1]} · ties ${ties}`;
  if (share === undefined) return `${head}: no votes yet that decide anything`;
  return `${head}: ${models[0]} is preferred in ${percent(share.value)} of ${wins[0] + wins[1]} (95 %: ${percent(share.low)} to ${percent(share.high)})`;
}
