/** A studio over a folder of runs that a test makes, and a client that was let in. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RunningStudio, type ServerOptions, startStudio } from './server.ts';

export function temporaryFolder(): string {
  return realpathSync(mkdtempSync(join(tmpdir(), 'attune-studio-')));
}

export interface Answer {
  status: number;
  headers: IncomingMessage['headers'];
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is
  json: any;
}

export interface Sent {
  method?: string;
  headers?: Record<string, string>;
  body?: unknown;
}

/** A connection for each request: one that is kept may be closed by the server in the moment in which it is used again. */
const agent = false;

/** A request byte for byte as given: fetch would normalise paths and forbid some headers. */
export function send(port: number, path: string, { method = 'GET', headers = {}, body }: Sent = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    const asked = request(
      {
        ...{ host: '127.0.0.1', port, method, path, agent },
        headers: {
          ...(text === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
          ...headers,
        },
      },
      (response) => {
        let read = '';
        response.on('data', (piece) => {
          read += piece;
        });
        response.on('end', () => {
          const answer = { status: response.statusCode ?? 0, headers: response.headers, text: read, json: undefined };
          try {
            answer.json = JSON.parse(read);
          } catch {}
          resolve(answer);
        });
        response.on('error', reject);
      },
    );
    asked.on('error', reject);
    asked.end(text);
  });
}

/** An answer that goes on: its events as they come. */
export interface Stream {
  response: IncomingMessage;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  events: { event: string; data: any; id?: string }[];
  until(test: (events: Stream['events']) => boolean, timeoutMs?: number): Promise<void>;
  close(): void;
}

export class Client {
  readonly studio: RunningStudio;
  cookie = '';

  constructor(studio: RunningStudio) {
    this.studio = studio;
  }

  async enter(): Promise<this> {
    const { port } = this.studio;
    const answer = await send(port, this.studio.newUrl().slice(this.studio.url.length));
    this.cookie = String(answer.headers['set-cookie']).split(';')[0] as string;
    return this;
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return send(this.studio.port, path, { headers: { cookie: this.cookie, ...headers } });
  }

  post(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Answer> {
    const own = { cookie: this.cookie, 'x-attune-studio': '1' };
    return send(this.studio.port, path, { method: 'POST', body, headers: { ...own, ...headers } });
  }

  stream(path: string, sent: Sent = {}): Promise<Stream> {
    const text = sent.body === undefined ? undefined : JSON.stringify(sent.body);
    return new Promise((resolve, reject) => {
      const asked: ClientRequest = request(
        {
          ...{ host: '127.0.0.1', port: this.studio.port, path, method: sent.method ?? 'GET', agent },
          headers: {
            cookie: this.cookie,
            ...(text === undefined ? {} : { 'content-type': 'application/json', 'x-attune-studio': '1' }),
            ...sent.headers,
          },
        },
        (response) => resolve(following(response, asked)),
      );
      asked.on('error', reject);
      asked.end(text);
    });
  }
}

function following(response: IncomingMessage, asked: ClientRequest): Stream {
  const events: Stream['events'] = [];
  let rest = '';
  let wake = () => {};
  response.setEncoding('utf8');
  response.on('data', (piece: string) => {
    const parts = (rest + piece).split('\n\n');
    rest = parts.pop() ?? '';
    for (const part of parts) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(part)?.[1];
      const [event, data, id] = [field('event'), field('data'), field('id')];
      if (event !== undefined && data !== undefined) events.push({ event, data: JSON.parse(data), id });
    }
    wake();
  });
  response.on('close', () => wake());
  response.on('error', () => wake());
  return {
    response,
    events,
    async until(test, timeoutMs = 240_000) {
      const end = Date.now() + timeoutMs;
      while (!test(events)) {
        if (Date.now() > end) throw new Error(`not in time; came: ${JSON.stringify(events).slice(0, 2000)}`);
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, 200);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
    },
    close: () => asked.destroy(),
  };
}

/** A studio and a client that was let in. */
export async function openStudio(options: Partial<ServerOptions> & { root: string }): Promise<Client> {
  const cache = options.cache ?? join(options.root, '..', `${options.root.split('/').at(-1)}-cache`);
  const studio = await startStudio({ port: 0, version: '1.2.3', ...options, cache });
  return new Client(studio).enter();
}

export interface MadeRun {
  command?: string;
  status?: string;
  config?: object;
  rows?: object[];
  snapshots?: string[];
}

/** A run's folder as a training leaves it, without the training. */
export function makeRun(root: string, name: string, made: MadeRun = {}): string {
  const path = join(root, name);
  mkdirSync(path, { recursive: true });
  const { command = 'train policy', status = 'finished', config = { model: 'models/tiny' } } = made;
  const created = '2026-01-01T00:00:00.000Z';
  writeFileSync(join(path, 'run.json'), JSON.stringify({ name, command, status, created, step: 2, totalSteps: 4 }));
  writeFileSync(join(path, 'config.json'), JSON.stringify(config));
  const rows = made.rows ?? [
    { step: 1, time: 1000, 'train/loss': 3, 'train/reward': 0.25 },
    { step: 2, time: 3000, 'train/loss': 2, 'train/reward': 0.5, 'eval/accuracy': 0.5 },
  ];
  writeFileSync(join(path, 'metrics.jsonl'), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  writeFileSync(join(path, 'train.log'), 'first line\nsecond line\n');
  for (const snapshot of made.snapshots ?? []) {
    mkdirSync(join(path, snapshot));
    writeFileSync(join(path, snapshot, 'trainer_state.json'), '{}');
  }
  return path;
}

export const removeFolder = (path: string) => {
  rmSync(path, { recursive: true, force: true });
  rmSync(`${path}-cache`, { recursive: true, force: true });
};
