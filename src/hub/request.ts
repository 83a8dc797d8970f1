/**
 * One request to the hub: with the token, a time limit, retries with growing pauses, and errors that say what to do.
 * Neither tokens nor signed addresses appear in messages.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AttuneError, UserError } from '../errors.ts';
import type { HubSettings } from './settings.ts';

/** The hub cannot be reached now. The caller may use a copy in the cache instead. */
export class HubUnreachable extends AttuneError {
  override name = 'HubUnreachable';
}

/** What a request is for, for its error message. */
export interface RepoPlace {
  repo: string;
  type: 'model' | 'dataset';
  revision: string;
  path?: string;
}

const LONGEST_PAUSE_MS = 60_000;
const LARGEST_ANSWER = 64e6;
const LARGEST_ERROR = 64e3;

export async function hubRequest(
  url: string,
  place: RepoPlace,
  settings: HubSettings,
  init: { method?: string; headers?: Record<string, string>; redirect?: 'follow' | 'manual' } = {},
): Promise<Response> {
  let { retries } = settings;
  for (let attempt = 0; ; attempt++) {
    let fault: string;
    let pauseMs: number | undefined;
    try {
      const response = await send(url, settings, init);
      if (response.ok || (init.redirect === 'manual' && response.status < 400) || response.status === 416)
        return response;
      const detail = await errorDetail(response, settings);
      if (![408, 425, 429].includes(response.status) && response.status < 500)
        throw refusal(response, place, settings, detail);
      fault = `the hub answered ${response.status}${detail}`;
      pauseMs = retryAfterMs(response.headers.get('retry-after'));
    } catch (error) {
      settings.signal?.throwIfAborted();
      if (error instanceof AttuneError) throw error;
      fault = networkFault(error, settings);
      // Without a network a retry does not help.
      if (isUnknownHost(error)) retries = Math.min(retries, 1);
    }
    if (attempt >= retries) {
      throw new HubUnreachable(
        `${placeName(place)} could not be fetched from ${settings.endpoint}: ${fault} (${attempt + 1} tries).`,
      );
    }
    announceRetry(place, fault, settings);
    await pause(attempt, settings, pauseMs);
  }
}

function isUnknownHost(error: unknown): boolean {
  const { code } = ((error as Error).cause ?? error) as NodeJS.ErrnoException;
  return code === 'ENOTFOUND' || code === 'EAI_AGAIN';
}

/** Reports that a request failed and is retried: the pauses add up to half a minute. */
export function announceRetry(place: RepoPlace, fault: string, settings: HubSettings): void {
  settings.progress?.start(`fetching ${placeName(place)}`).done(`${fault}; trying again`);
}

/**
 * Waits after a failed attempt (`attempt` counts from 0): as long as the server asked, else twice as long each time.
 */
export async function pause(attempt: number, settings: HubSettings, askedMs?: number): Promise<void> {
  const jitter = 0.75 + Math.random() / 2;
  const ms = askedMs ?? settings.backoffMs * 2 ** attempt * jitter;
  await sleep(Math.min(ms, LONGEST_PAUSE_MS), undefined, { signal: settings.signal });
}

/** The cause in a few words; fetch keeps it in `error.cause`. */
export function networkFault(error: unknown, settings: HubSettings): string {
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  if ((error as Error).name === 'TimeoutError') return `no answer within ${settings.timeoutMs / 1000} s`;
  return cause?.code ?? cause?.message ?? (error as Error).message;
}

export function placeName({ repo, revision, path }: RepoPlace): string {
  return `${repo}${revision === 'main' ? '' : `@${revision}`}${path === undefined ? '' : `/${path}`}`;
}

async function send(url: string, settings: HubSettings, init: RequestInit): Promise<Response> {
  // This limit ends when the response begins; reading the body has its own (withinSilence).
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new DOMException('silence', 'TimeoutError')), settings.timeoutMs);
  const signals = settings.signal === undefined ? [limit.signal] : [limit.signal, settings.signal];
  try {
    return await fetch(url, {
      ...init,
      headers: {
        'user-agent': 'attune',
        ...(settings.token && { authorization: `Bearer ${settings.token}` }),
        ...init.headers,
      },
      signal: AbortSignal.any(signals),
    });
  } finally {
    clearTimeout(timer);
  }
}

/** The hub's own error message, if it sent one. The token is removed, in case the server echoes it. */
async function errorDetail(response: Response, settings: HubSettings): Promise<string> {
  let message = response.headers.get('x-error-message') ?? '';
  try {
    const body = (await readBody(response, LARGEST_ERROR, settings)).toString('utf8');
    if (message === '' && response.headers.get('content-type')?.includes('json'))
      message = String(JSON.parse(body).error ?? '');
  } catch {
    // No readable body: the status alone is reported.
  }
  if (settings.token !== undefined) message = message.replaceAll(settings.token, '***');
  return message === '' ? '' : ` ("${message.slice(0, 200)}")`;
}

/** The JSON body of a response of the hub's API. */
export async function readJsonBody(response: Response, place: RepoPlace, settings: HubSettings): Promise<unknown> {
  let text: string;
  try {
    text = (await readBody(response, LARGEST_ANSWER, settings)).toString('utf8');
  } catch (error) {
    settings.signal?.throwIfAborted();
    if (error instanceof AttuneError) throw error;
    throw new HubUnreachable(`The hub's answer about ${placeName(place)} broke off: ${networkFault(error, settings)}.`);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new AttuneError(
      `${settings.endpoint} answered about ${placeName(place)} with something other than JSON; is it a Hugging Face hub?`,
    );
  }
}

/** Reads a whole body, with limits on its size, on the wait between two pieces and on the total time. */
async function readBody(response: Response, mostBytes: number, settings: HubSettings): Promise<Buffer> {
  const reader = response.body?.getReader();
  const pieces: Uint8Array[] = [];
  const deadline = performance.now() + settings.timeoutMs * 10;
  let bytes = 0;
  try {
    while (reader !== undefined) {
      const piece = await withinSilence(reader.read(), settings);
      if (piece.done) break;
      pieces.push(piece.value);
      bytes += piece.value.length;
      if (bytes > mostBytes) throw new AttuneError(`The hub's answer is longer than ${mostBytes / 1e6} MB.`);
      if (performance.now() > deadline) throw new DOMException('endless', 'TimeoutError');
    }
  } finally {
    await reader?.cancel().catch(() => {});
  }
  return Buffer.concat(pieces);
}

/** Rejects if `work` takes longer than the time limit, or the signal aborts. */
export async function withinSilence<T>(work: Promise<T>, settings: HubSettings): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  const stopped = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new DOMException('silence', 'TimeoutError')), settings.timeoutMs);
    onAbort = () => reject(settings.signal?.reason);
    settings.signal?.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([work, stopped]);
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) settings.signal?.removeEventListener('abort', onAbort);
  }
}

function refusal(response: Response, place: RepoPlace, settings: HubSettings, detail: string): UserError {
  const { repo, type, revision, path } = place;
  const code = response.headers.get('x-error-code');
  const hasToken = settings.token !== undefined;
  const page = `${settings.endpoint}/${type === 'dataset' ? 'datasets/' : ''}${repo}`;
  if (code === 'GatedRepo' || response.status === 403) {
    const login = hasToken
      ? 'check that HF_TOKEN belongs to an account with access'
      : 'set HF_TOKEN to a token of that account';
    return new UserError(`${repo} is gated${detail}: accept its licence at ${page}, then ${login}.`);
  }
  if (response.status === 401 && (code === null || code === 'RepoNotFound')) {
    // The hub also answers 401 for a name that does not exist, so as not to reveal private repositories.
    const login = hasToken ? 'HF_TOKEN was sent but not accepted for it' : 'no HF_TOKEN is set';
    return new UserError(
      `${repo} does not exist on ${settings.endpoint}, or is private, and ${login}${detail}. Check the spelling and HF_TOKEN.`,
    );
  }
  if (response.status === 401) return new UserError(`The hub did not accept HF_TOKEN for ${repo}${detail}.`);
  if (response.status === 404) {
    if (code === 'RevisionNotFound')
      return new UserError(`${repo} has no revision "${revision}" (branch, tag or commit).`);
    if (code === 'EntryNotFound' && path !== undefined)
      return new UserError(`${repo} has no file "${path}" at revision "${revision}".`);
    if (code === 'RepoNotFound') return new UserError(`There is no ${type} "${repo}" on ${settings.endpoint}.`);
    return new UserError(
      path === undefined
        ? `There is no ${type} "${repo}" on ${settings.endpoint}, or it has no revision "${revision}"${detail}.`
        : `${repo} has no file "${path}" at revision "${revision}"${detail}.`,
    );
  }
  return new UserError(`The hub refused ${placeName(place)} with status ${response.status}${detail}.`);
}

/** Retry-After in milliseconds. The header is in seconds or a date; undefined if it is neither. */
function retryAfterMs(value: string | null): number | undefined {
  if (value === null) return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
