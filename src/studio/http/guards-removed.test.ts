/**
 * Guards below the rules of guard.ts, each taken out once to see that the attack then succeeds: what door.test.ts holds
 * shut is held shut by them and by nothing else.
 */
import { symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ModelPlaces } from '../commands/places.ts';
import { type Client, makeRun, openStudio, removeFolder, send, temporaryFolder } from '../studio.test-support.ts';
import { Root } from './folder.ts';
import { Keys } from './keys.ts';
import { get, Router } from './router.ts';

const [root, outside] = [temporaryFolder(), temporaryFolder()];
let client: Client;

beforeAll(async () => {
  makeRun(root, 'run');
  makeRun(outside, 'secret');
  writeFileSync(join(outside, 'secret.jsonl'), '{"prompt":"a","chosen":"b","rejected":"c"}\n');
  symlinkSync(join(outside, 'secret.jsonl'), join(root, 'link.jsonl'));
  writeFileSync(join(root, 'pairs.jsonl'), '{"prompt":"a","chosen":"b","rejected":"c"}\n');
  client = await openStudio({ root });
});
afterEach(() => void vi.restoreAllMocks());
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
  removeFolder(outside);
});

describe('a token', () => {
  it('works once because it is forgotten', () => {
    const keys = new Keys(1);
    const token = keys.newToken();
    expect([keys.exchange(token) !== undefined, keys.exchange(token) !== undefined]).toEqual([true, false]);
    // A set that forgets nothing.
    vi.spyOn(Set.prototype, 'delete').mockImplementation(function (this: Set<unknown>, value) {
      return this.has(value);
    });
    const weak = new Keys(1);
    const kept = weak.newToken();
    expect([weak.exchange(kept) !== undefined, weak.exchange(kept) !== undefined]).toEqual([true, true]);
  });
});

describe('paths', () => {
  const isShown = async (path: string) =>
    (await client.get(`/api/data/examples?dataset=${encodeURIComponent(path)}`)).status === 200;
  const escapes = () => [
    ...['link.jsonl', join(root, 'link.jsonl'), join(outside, 'secret.jsonl')],
    `../${outside.split('/').at(-1)}/secret.jsonl`,
  ];

  it('lead outside by a link, a whole path or dots only without the folder’s own check', async () => {
    for (const path of escapes()) expect([path, await isShown(path)]).toEqual([path, false]);
    vi.spyOn(Root.prototype, 'holds').mockReturnValue(true);
    for (const path of escapes()) expect([path, await isShown(path)]).toEqual([path, true]);
  });

  const others = ['LINK.jsonl', '%6cink.jsonl', 'link%2ejsonl', '..%2fsecret.jsonl', 'link.jsonl%00', 'link.jsonl\0'];

  it('of another case or encoded once more are other names', async () => {
    for (const path of [...others, 'PAIRS.jsonl', '%70airs.jsonl', 'pairs%2ejsonl'])
      expect([path, await isShown(path)]).toEqual([path, false]);
    expect(await isShown('pairs.jsonl')).toBe(true);
  });

  it('encoded once more name a file only where they are decoded once more', async () => {
    const encoded = ['%70airs.jsonl', 'pairs%2ejsonl', '%2e%2fpairs.jsonl'];
    for (const path of encoded) expect([path, await isShown(path)]).toEqual([path, false]);
    const { find } = ModelPlaces.prototype;
    vi.spyOn(ModelPlaces.prototype, 'find').mockImplementation(function (this: ModelPlaces, given) {
      return find.call(this, decodeURIComponent(given));
    });
    for (const path of encoded) expect([path, await isShown(path)]).toEqual([path, true]);
    // What leads outside is refused even then, by where it ends.
    expect(await isShown('%6cink.jsonl')).toBe(false);
  });

  it('of another case lead outside, where a file system ignores case, only without the folder’s own check', async () => {
    vi.resetModules();
    vi.doMock('node:fs', async (original) => {
      const fs = await original<typeof import('node:fs')>();
      // As macOS and Windows do: the name is found whatever its case.
      return { ...fs, realpathSync: (path: string) => fs.realpathSync(path.replace('LINK', 'link')) };
    });
    const { Root: Folded } = await import('./folder.ts');
    vi.doUnmock('node:fs');
    const folded = new Folded(root);
    expect(folded.find('LINK.jsonl')).toBeUndefined();
    vi.spyOn(Folded.prototype, 'holds').mockReturnValue(true);
    expect(folded.find('LINK.jsonl')).toBe(join(outside, 'secret.jsonl'));
  });
});

describe('routes and ids', () => {
  const statusOf = async (weak: Client, path: string) => (await weak.get(path)).status;
  const encodedId = (id: string) => [...id].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('');

  /** A studio whose routes are matched whatever the case. */
  async function withoutCase(): Promise<Client> {
    const Plain = RegExp;
    vi.stubGlobal(
      'RegExp',
      class extends Plain {
        constructor(pattern: string | RegExp, flags?: string) {
          const isRoute = typeof pattern === 'string' && pattern.startsWith('^/api');
          super(pattern, isRoute ? 'i' : flags);
        }
      },
    );
    try {
      return await openStudio({ root });
    } finally {
      vi.unstubAllGlobals();
    }
  }

  it('are told apart by case because they are matched as they are', async () => {
    const [{ id }] = (await client.get('/api/runs')).json;
    expect(await statusOf(client, `/API/Runs/${id}/console`)).toBe(404);
    const weak = await withoutCase();
    expect(await statusOf(weak, `/API/Runs/${id}/console`)).toBe(200);
    // An id of another case is no id even there: it is looked up, letter by letter.
    expect(await statusOf(weak, `/api/runs/${id.toUpperCase()}/console`)).toBe(404);
    const { idOf } = Root.prototype;
    vi.spyOn(Root.prototype, 'idOf').mockImplementation(function (this: Root, path) {
      return idOf.call(this, path).toUpperCase();
    });
    expect(await statusOf(weak, `/api/runs/${id.toUpperCase()}/console`)).toBe(200);
    await weak.studio.close();
  });

  it('are taken encoded only by a server that decodes them', async () => {
    const [{ id }] = (await client.get('/api/runs')).json;
    for (const path of [`/api/runs/${encodedId(id)}/console`, `/api/runs/${id}/%63onsole`])
      expect([path, await statusOf(client, path)]).toEqual([path, 404]);
    const { answer } = Router.prototype;
    vi.spyOn(Router.prototype, 'answer').mockImplementation(function (this: Router, request, response) {
      request.url = decodeURIComponent(request.url ?? '');
      return answer.call(this, request, response);
    });
    for (const path of [`/api/runs/${encodedId(id)}/console`, `/api/runs/${id}/%63onsole`])
      expect([path, await statusOf(client, path)]).toEqual([path, 200]);
  });
});

describe('bodies', () => {
  it('of any size are taken only without the limit', async () => {
    const body = { ids: ['x'.repeat(3 << 20)] };
    expect((await client.post('/api/compare', body)).status).toBe(413);
    const weak = await openStudio({ root, bodyLimit: Number.POSITIVE_INFINITY });
    expect((await weak.post('/api/compare', body)).status).toBe(404);
    await weak.studio.close();
  });
});

describe('a client that leaves its stream unread', () => {
  /** Resolves when the server has given it up. */
  async function unread(patienceMs: number): Promise<{ givenUp: Promise<void>; socket: Socket; close(): void }> {
    const endless = get('/endless', async ({ stream: open }) => {
      const stream = open();
      while (stream.open) await stream.send('piece', 'x'.repeat(1 << 16));
    });
    const router = new Router([endless], { patienceMs });
    const server = createServer();
    const givenUp = new Promise<void>((resolve) => {
      server.on('request', (request, response) => void router.answer(request, response).then(resolve));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, '127.0.0.1', () => socket.write('GET /endless HTTP/1.1\r\nHost: x\r\n\r\n'));
    socket.on('error', () => {}).pause();
    return { givenUp, socket, close: () => void server.close() };
  }

  it('is kept for ever only by a server that has patience for ever', async () => {
    const patient = await unread(2 ** 31 - 1);
    const usual = await unread(200);
    const first = await Promise.race([usual.givenUp.then(() => 'usual'), patient.givenUp.then(() => 'patient')]);
    expect(first).toBe('usual');
    for (const { socket, close } of [patient, usual]) {
      socket.destroy();
      close();
    }
    await patient.givenUp;
  });
});

describe('an address that others can reach', () => {
  it('is taken without a token only where every address counts as this machine', async () => {
    vi.resetModules();
    vi.doMock('../../serve/http.ts', async (original) => ({ ...(await original<object>()), isLoopback: () => true }));
    const { startStudio } = await import('../server.ts');
    const weak = await startStudio({ root, port: 0, host: '0.0.0.0', version: '1', cache: `${root}-cache` });
    expect((await send(weak.port, '/api/session')).status).toBe(401);
    await weak.close();
    vi.doUnmock('../../serve/http.ts');
  });
});
