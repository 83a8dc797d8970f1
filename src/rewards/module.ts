/**
 * A TypeScript module of the user's as a scorer: its default export takes a batch and gives numbers, or named parts.
 *
 *     // my-reward.ts
 *     export default async (batch) => batch.map(({ response }) => -response.length);
 *
 *     const scorer = await loadRewardModule('./my-reward.ts', { timeLimitMs: 10_000 });
 */
import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { AttuneError, UserError } from '../errors.ts';
import type { RewardItem, RewardParts, RewardScorer, ScoreOptions } from './scorer.ts';

/** One number per item; or one list per named part; or for each item its parts. The total of parts is their sum. */
export type RewardOutput = ArrayLike<number> | Record<string, ArrayLike<number>> | readonly Record<string, number>[];

export type RewardFunction = (
  items: readonly RewardItem[],
  options: { signal: AbortSignal },
) => RewardOutput | Promise<RewardOutput>;

export interface RewardFunctionOptions {
  name?: string;
  /** How long one batch may take; 60 s unless given. */
  timeLimitMs?: number;
}

export async function loadRewardModule(path: string, options: RewardFunctionOptions = {}): Promise<RewardScorer> {
  const file = resolve(path);
  if (!existsSync(file)) throw new UserError(`There is no reward module ${path}.`);
  let loaded: Record<string, unknown>;
  try {
    loaded = await import(pathToFileURL(file).href);
  } catch (error) {
    throw new UserError(`The reward module ${path} cannot be loaded: ${(error as Error).message}`);
  }
  const found = loaded.default ?? loaded.reward;
  if (typeof found !== 'function') {
    throw new UserError(
      `The reward module ${path} exports no function: it needs "export default async (batch) => [...]" (it exports: ${Object.keys(loaded).join(', ') || 'nothing'}).`,
    );
  }
  return rewardFunction(found as RewardFunction, { name: basename(path).replace(/\.[^.]+$/, ''), ...options });
}

/** A function as a scorer. */
export function rewardFunction(body: RewardFunction, options: RewardFunctionOptions = {}): RewardScorer {
  const { name = 'function', timeLimitMs = 60_000 } = options;
  const call = async (items: readonly RewardItem[], signal?: AbortSignal): Promise<RewardParts> => {
    const limit = new AbortController();
    const late = new AttuneError(`The reward "${name}" took longer than ${timeLimitMs / 1000} s for a batch.`);
    // A timer of its own, since AbortSignal.timeout does not keep the process alive: with nothing else left to wait for,
    // Node would leave without a word.
    const timer = setTimeout(() => limit.abort(late), timeLimitMs);
    const both = signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]);
    const stopped = new Promise<never>((_, reject) => {
      both.addEventListener('abort', () => reject(both.reason));
    });
    stopped.catch(() => {});
    const work = Promise.resolve().then(() => body(items, { signal: both }));
    try {
      return toParts(await Promise.race([work, stopped]), items.length, name);
    } finally {
      clearTimeout(timer);
    }
  };
  const parts = async (items: readonly RewardItem[], { signal }: ScoreOptions = {}): Promise<RewardParts> => {
    if (items.length === 0) return { total: [], parts: {} };
    try {
      return await call(items, signal);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof AttuneError) throw error;
      throw await culprit(items, error as Error, (item) => call([item], signal), name);
    }
  };
  return { name, parts, score: async (items, given) => (await parts(items, given)).total };
}

/** A batch failed; its items one by one tell which of them is to blame. */
async function culprit(
  items: readonly RewardItem[],
  error: Error,
  callOne: (item: RewardItem) => Promise<unknown>,
  name: string,
): Promise<AttuneError> {
  for (const [index, item] of items.entries()) {
    try {
      await callOne(item);
    } catch (own) {
      const { prompt, response } = item;
      const shown = typeof prompt === 'string' ? prompt : (prompt.at(-1)?.content ?? '');
      return new AttuneError(
        `The reward "${name}" failed on sample ${index} of ${items.length} (prompt ${short(shown)}, response ${short(response)}): ${(own as Error).message}`,
        { cause: own },
      );
    }
  }
  return new AttuneError(`The reward "${name}" failed on a batch of ${items.length} samples: ${error.message}`, {
    cause: error,
  });
}

function short(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return JSON.stringify(line.length > 60 ? `${line.slice(0, 57)}…` : line);
}

function toParts(output: RewardOutput, count: number, name: string): RewardParts {
  const named = namedLists(output, count, name);
  const lists = Object.entries(named);
  for (const [part, values] of lists) {
    if (values.length !== count)
      throw new AttuneError(`The reward "${name}" gave ${values.length} numbers ("${part}") for ${count} samples.`);
    const bad = values.findIndex((value) => typeof value !== 'number' || !Number.isFinite(value));
    if (bad >= 0)
      throw new AttuneError(
        `The reward "${name}" gave ${String(values[bad])} ("${part}") for sample ${bad}: not a finite number.`,
      );
  }
  const total = Array.from({ length: count }, (_, i) =>
    lists.reduce((sum, [, values]) => sum + (values[i] as number), 0),
  );
  return { total, parts: named };
}

function namedLists(output: RewardOutput, count: number, name: string): Record<string, number[]> {
  if (output === null || typeof output !== 'object')
    throw new AttuneError(
      `The reward "${name}" gave ${String(output)}; it must give one number per sample, or named parts.`,
    );
  if (typeof output.length === 'number') {
    const list = Array.from(output as ArrayLike<number | Record<string, number>>);
    if (typeof list[0] !== 'object' || list[0] === null) return { [name]: list as number[] };
    if (list.length !== count)
      throw new AttuneError(`The reward "${name}" gave ${list.length} results for ${count} samples.`);
    const rows = list as Record<string, number>[];
    return Object.fromEntries(Object.keys(rows[0] ?? {}).map((part) => [part, rows.map((row) => row[part] as number)]));
  }
  return Object.fromEntries(
    Object.entries(output).map(([part, values]) => [part, Array.from(values as ArrayLike<number>)]),
  );
}
