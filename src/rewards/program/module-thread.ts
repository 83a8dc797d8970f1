/** The thread in which a user's reward module runs; see module.ts. */

import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';
import type { RewardItem, RewardParts } from '../scorer.ts';
import { messageOf, RewardError, type RewardFault, type RewardFunction, scoreBatch } from './batch.ts';

export interface ThreadData {
  file: string;
  name: string;
}

export type ThreadRequest =
  | { kind: 'score'; number: number; items: readonly RewardItem[] }
  | { kind: 'abort'; number: number };

export type ThreadReply =
  | { kind: 'ready' }
  | { kind: 'unusable'; message: string }
  | { kind: 'scored'; number: number; parts: RewardParts }
  | { kind: 'failed'; number: number; message: string; fault: RewardFault };

const { file, name } = workerData as ThreadData;
const running = new Map<number, AbortController>();
const reply = (message: ThreadReply) => parentPort?.postMessage(message);

const body = await load();
if (body !== undefined) {
  parentPort?.on('message', (request: ThreadRequest) => {
    if (request.kind === 'score') void score(body, request.number, request.items);
    else running.get(request.number)?.abort();
  });
  reply({ kind: 'ready' });
}

async function load(): Promise<RewardFunction | undefined> {
  try {
    const loaded = (await import(pathToFileURL(file).href)) as Record<string, unknown>;
    const found = loaded.default ?? loaded.reward;
    if (typeof found === 'function') return found as RewardFunction;
    const names = Object.keys(loaded).join(', ') || 'nothing';
    reply({
      kind: 'unusable',
      message: `exports no function: it needs "export default async (batch) => [...]" (it exports: ${names}).`,
    });
  } catch (error) {
    reply({ kind: 'unusable', message: `cannot be loaded: ${loadFault(error)}` });
  }
  return undefined;
}

/** Node only strips types. TypeScript that needs generated code (enums, decorators) is refused with an explanation. */
function loadFault(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  const place = placeOf(error);
  const hint =
    code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX'
      ? '. Types are only stripped, so enums, namespaces and parameter properties cannot be used: write a constant object or a union type.'
      : '';
  return `${place === undefined ? '' : `${place}: `}${messageOf(error)}${hint}`;
}

/** `file:line`, from the head of a parser's stack or from its first frame that is not Node's. */
function placeOf(error: unknown): string | undefined {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const head = /^(?:file:\/\/)?(\/\S+|[A-Z]:\\\S+):(\d+)\n/.exec(stack);
  if (head !== null) return `${head[1]}:${head[2]}`;
  // A JavaScript SyntaxError has no position; the type stripper parses JavaScript too and gives one.
  if (error instanceof SyntaxError && stack.length > 0) {
    try {
      stripTypeScriptTypes(readFileSync(file, 'utf8'), { sourceUrl: file });
    } catch (parsed) {
      const line = /:(\d+)\n/.exec((parsed as Error).stack ?? '')?.[1];
      if (line !== undefined) return `${file}:${line}`;
    }
  }
  const frame = /\((?:file:\/\/)?(\/[^)]+?):(\d+):\d+\)|at (?:file:\/\/)(\/\S+?):(\d+):\d+/.exec(stack);
  const path = frame?.[1] ?? frame?.[3];
  return path === undefined || path.startsWith('node:') ? undefined : `${path}:${frame?.[2] ?? frame?.[4]}`;
}

async function score(reward: RewardFunction, number: number, items: readonly RewardItem[]): Promise<void> {
  const controller = new AbortController();
  running.set(number, controller);
  try {
    reply({ kind: 'scored', number, parts: await scoreBatch(reward, items, { name, signal: controller.signal }) });
  } catch (error) {
    const fault = error instanceof RewardError ? error.fault : 'sample';
    reply({ kind: 'failed', number, message: messageOf(error), fault });
  } finally {
    running.delete(number);
  }
}
