/** Requests to the studio's server. A lost connection is noticed here, and noticed again when it is back. */
import { signal } from '@preact/signals';
import type { ApiFailure, Session } from '../../src/studio/api.ts';

/** The server's refusal, in its own words. */
export class Refused extends Error {
  readonly status: number;
  readonly failure: ApiFailure['error'];

  constructor(status: number, failure: ApiFailure['error']) {
    super(failure.message);
    this.status = status;
    this.failure = failure;
  }
}

/** The server did not answer. */
export class Lost extends Error {
  constructor() {
    super('The studio does not answer.');
  }
}

export type Connection = 'fine' | 'lost' | 'stranger';
/** stranger: the server answers, but does not know this browser (any more). */
export const connection = signal<Connection>('fine');
/** Counts reconnections: whoever shows something reads it anew when this changes. */
export const reconnections = signal(0);
export const session = signal<Session | undefined>(undefined);

export type Values = Record<string, string | number | boolean | undefined | null>;

export function address(path: string, query: Values = {}): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === null || value === '' || value === false
      ? []
      : [[name, value === true ? '1' : String(value)]],
  );
  const search = new URLSearchParams(given).toString();
  return `/api/${path}${search === '' ? '' : `?${search}`}`;
}

export async function get<T>(path: string, query: Values = {}, abort?: AbortSignal): Promise<T> {
  const answer = await call(address(path, query), abort ? { signal: abort } : {});
  return (await answer.json()) as T;
}

export async function post<T>(path: string, body: unknown = {}, abort?: AbortSignal): Promise<T> {
  return (await (await send(path, body, abort)).json()) as T;
}

/** A request whose answer is read by the caller, for streams. */
export function send(path: string, body: unknown, abort?: AbortSignal): Promise<Response> {
  return call(address(path), {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-attune-studio': '1' },
    body: JSON.stringify(body),
    ...(abort ? { signal: abort } : {}),
  });
}

async function call(url: string, options: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    lose();
    throw new Lost();
  }
  if (answer.ok) return answer;
  const failure = await failureOf(answer);
  if (failure.code === 'cookie') lose('stranger');
  throw new Refused(answer.status, failure);
}

async function failureOf(answer: Response): Promise<ApiFailure['error']> {
  try {
    const body = (await answer.json()) as ApiFailure;
    if (typeof body.error?.message === 'string') return body.error;
  } catch {
    // Not JSON: the status has to do.
  }
  return { message: `The studio answered with ${answer.status} ${answer.statusText}`.trim(), code: 'unknown' };
}

/** Called where a request or a stream broke off: asks until there is an answer, then has everything read anew. */
export function lose(how: 'lost' | 'stranger' = 'lost'): void {
  if (connection.peek() !== 'fine') return;
  connection.value = how;
  void comeBack();
}

async function comeBack(): Promise<void> {
  for (let wait = 500; connection.peek() !== 'fine'; wait = Math.min(5000, wait * 1.5)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      const answer = await fetch('/api/session');
      // Signed in again in another tab, this one goes on as well.
      if (answer.status === 401 || answer.status === 403) connection.value = 'stranger';
      if (!answer.ok) continue;
      session.value = (await answer.json()) as Session;
      connection.value = 'fine';
      reconnections.value++;
    } catch {
      // Still away.
    }
  }
}

export async function openSession(): Promise<void> {
  try {
    session.value = await get<Session>('session');
  } catch (error) {
    if (!(error instanceof Lost) && !(error instanceof Refused)) throw error;
  }
}
