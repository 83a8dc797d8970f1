/**
 * A small hub for tests: the addresses, headers and redirects of the real one, and faults on request.
 *
 *     const hub = await startHub({ 'org/name': { 'config.json': '{}', 'model.safetensors': bytes } });
 *     hub.fault = (request) => (request.url.includes('model') ? { status: 500 } : undefined);
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

type Files = Record<string, string | Buffer>;

export interface Fault {
  /** Answer with this status (and headers) instead. */
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  /**
   * Send this many bytes of the body, then cut the connection, once `arrived` says that the client has some of them.
   */
  cutAfter?: number;
  arrived?: () => boolean;
  /** Send this many bytes of the body, then nothing more. */
  stallAfter?: number;
  /** Send a body that never ends, piece by piece. */
  drip?: { bytes: number; everyMs: number };
  /** Never answer. */
  hang?: boolean;
  /** Send these bytes for the file. */
  content?: Buffer;
  /** Ignore Range. */
  wholeFile?: boolean;
}

export interface Seen {
  method: string;
  url: string;
  range?: string;
  authorization?: string;
  /** Which of the two servers: the hub, or the one it redirects large files to. */
  server: 'hub' | 'cdn';
}

export interface TestHub {
  endpoint: string;
  commit: string;
  seen: Seen[];
  fault: (request: Seen) => Fault | undefined;
  close(): Promise<void>;
}

export async function startHub(repos: Record<string, Files>, large = /safetensors$|parquet$|bin$/): Promise<TestHub> {
  const commit = createHash('sha1')
    .update(JSON.stringify(Object.keys(repos)))
    .digest('hex');
  const hub = { endpoint: '', commit, seen: [] as Seen[], fault: () => undefined } as unknown as TestHub;
  let cdnUrl = '';

  const handle = (server: 'hub' | 'cdn') => (request: IncomingMessage, response: ServerResponse) => {
    const { range, authorization } = request.headers;
    const seen: Seen = { method: request.method ?? '', url: request.url ?? '', range, authorization, server };
    hub.seen.push(seen);
    const fault = hub.fault(seen) ?? {};
    if (fault.hang) return;
    if (fault.drip !== undefined) {
      const piece = Buffer.alloc(fault.drip.bytes, ' ');
      response.writeHead(fault.status ?? 200, fault.headers).write(piece);
      const timer = setInterval(() => response.write(piece), fault.drip.everyMs);
      response.on('close', () => clearInterval(timer));
      return;
    }
    if (fault.status !== undefined) {
      response.writeHead(fault.status, fault.headers).end(fault.body ?? '');
      return;
    }
    const url = new URL(seen.url, 'http://hub');
    const api = /^\/api\/(?:models|datasets)\/(.+?)\/(revision|tree)\/([^/]+)$/.exec(url.pathname);
    const resolve = /^\/(?:datasets\/)?(.+?)\/resolve\/([^/]+)\/(.+)$/.exec(url.pathname);
    const repo = (api ?? resolve)?.[1] ?? '';
    const files = repos[repo];
    const missing = (code: string) => response.writeHead(404, { 'x-error-code': code }).end();
    if (files === undefined) return missing('RepoNotFound');
    const revision = decodeURIComponent(api?.[3] ?? resolve?.[2] ?? '');
    if (!['main', 'v1', 'refs/pr/1', commit].includes(revision)) return missing('RevisionNotFound');
    if (api?.[2] === 'revision') return json(response, { id: repo, sha: commit, siblings: [] });
    if (api?.[2] === 'tree')
      return json(
        response,
        Object.entries(files).map(([path, content]) => entry(path, content, large)),
      );
    const path = decodeURIComponent(resolve?.[3] ?? '');
    const content = files[path];
    if (content === undefined) return missing('EntryNotFound');
    const listed = entry(path, content, large);
    if (server === 'hub' && listed.lfs !== undefined) {
      const headers = {
        location: `${cdnUrl}${seen.url}`,
        'x-linked-etag': `"${listed.lfs.oid}"`,
        'x-linked-size': listed.size,
        'x-repo-commit': commit,
      };
      response.writeHead(302, headers).end();
      return;
    }
    sendFile(response, fault.content ?? Buffer.from(content), {
      etag: listed.oid,
      commit,
      range: fault.wholeFile ? undefined : range,
      fault,
    });
  };

  const servers = [createServer(handle('hub')), createServer(handle('cdn'))];
  const open = new Set<Socket>();
  for (const server of servers)
    server.on('connection', (socket) => {
      open.add(socket);
      socket.on('close', () => open.delete(socket));
    });
  const [endpoint, cdn] = await Promise.all(
    servers.map(async (server) => {
      await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    }),
  );
  hub.endpoint = endpoint as string;
  cdnUrl = cdn as string;
  hub.close = async () => {
    // First refuses new connections, then ends the existing ones: in the other order, a server once never closed.
    const closed = servers.map((server) => new Promise((done) => server.close(done)));
    for (const socket of open) socket.destroy();
    await Promise.all(closed);
  };
  return hub;
}

function sendFile(
  response: ServerResponse,
  content: Buffer,
  { etag, commit, range, fault }: { etag: string; commit: string; range?: string; fault: Fault },
): void {
  const start = Number(/^bytes=(\d+)-/.exec(range ?? '')?.[1] ?? 0);
  const headers: Record<string, string | number> = {
    etag: `"${etag}"`,
    'x-repo-commit': commit,
    'accept-ranges': 'bytes',
  };
  if (range !== undefined) headers['content-range'] = `bytes ${start}-${content.length - 1}/${content.length}`;
  const body = content.subarray(start);
  response.writeHead(range === undefined ? 200 : 206, { ...headers, 'content-length': body.length });
  if (fault.stallAfter !== undefined) response.write(body.subarray(0, fault.stallAfter));
  else if (fault.cutAfter === undefined || fault.cutAfter >= body.length) response.end(body);
  else response.write(body.subarray(0, fault.cutAfter), () => cut(response, fault.arrived));
}

/** Breaks a connection; what the client has not read of it is lost. */
function cut(response: ServerResponse, arrived = () => true): void {
  setTimeout(() => (arrived() ? response.destroy() : cut(response, arrived)), 20);
}

function entry(path: string, content: string | Buffer, large: RegExp) {
  const bytes = Buffer.from(content);
  const oid = createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const lfs = large.test(path) ? { oid: sha256, size: bytes.length, pointerSize: 130 } : undefined;
  return { type: 'file' as const, path, size: bytes.length, oid, lfs };
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}
