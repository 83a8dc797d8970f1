/**
 * One test per rule that keeps strangers out, each on every route. Each rule is also taken out once, to see that the
 * attack then succeeds: the test would notice if the rule were gone.
 */
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startStudio } from '../server.ts';
import {
  type Answer,
  type Client,
  makeRun,
  openStudio,
  removeFolder,
  type Sent,
  send,
  temporaryFolder,
} from '../studio.test-support.ts';
import { allRules, hostsOf } from './guard.ts';
import { get, Router } from './router.ts';

const root = temporaryFolder();
let client: Client;
let runId: string;

beforeAll(async () => {
  makeRun(root, 'run');
  client = await openStudio({ root });
  runId = (await client.get('/api/runs')).json[0].id;
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});

/** Every route with an id that exists, its assets and what is not there. */
const routes = () => [
  ...client.studio.studio.routes.map(({ method, path }) => ({
    method,
    path: path.replace(':id', runId).replace(/:\w+/, '1'),
  })),
  { method: 'GET', path: '/' },
  { method: 'GET', path: '/assets/index.js' },
  { method: 'GET', path: '/nothing' },
];

/** A request of somebody who was let in, but for what `sent` changes. */
const ask = (path: string, sent: Sent & { method?: string }, port = client.studio.port): Promise<Answer> =>
  send(port, path, {
    ...sent,
    ...(sent.method === 'POST' ? { body: sent.body ?? {} } : {}),
    headers: { cookie: client.cookie, 'x-attune-studio': '1', ...sent.headers },
  });

async function everywhere(headers: Record<string, string>): Promise<string[]> {
  const answered: string[] = [];
  for (const { method, path } of routes()) {
    const { status, json, text } = await ask(path, { method, headers });
    answered.push(`${status} ${json?.error?.code ?? text.slice(0, 40)}`);
  }
  return [...new Set(answered)];
}

/** A studio without one of the rules, and the cookie of its own client. */
async function without(rule: string, work: (weak: Client) => Promise<void>): Promise<void> {
  const { [rule]: _, ...rules } = allRules;
  const weak = await openStudio({ root, rules });
  try {
    await work(weak);
  } finally {
    await weak.studio.close();
  }
}

describe('on every route and stream', () => {
  it('has many routes', () => expect(routes().length).toBeGreaterThan(15));

  it('refuses another Host (DNS rebinding)', async () => {
    const { port } = client.studio;
    for (const host of ['evil.example', `evil.example:${port}`, `127.0.0.1:${port + 1}`, '127.0.0.1.evil.example'])
      expect(await everywhere({ host })).toEqual(['403 host']);
    await without('host', async (weak) => {
      expect((await weak.get('/api/runs', { host: 'evil.example' })).status).toBe(200);
    });
  });

  it('answers to its own names', async () => {
    const { port } = client.studio;
    for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`])
      expect((await client.get('/api/session', { host })).status).toBe(200);
  });

  it('refuses another Origin', async () => {
    const { port } = client.studio;
    for (const origin of ['http://evil.example', 'null', `http://localhost:${port + 1}`, `https://127.0.0.1:${port}`])
      expect(await everywhere({ origin })).toEqual(['403 origin']);
    await without('origin', async (weak) => {
      expect((await weak.get('/api/runs', { origin: 'http://evil.example' })).status).toBe(200);
    });
  });

  it('refuses what a browser says is of another site, even of another port of this host', async () => {
    for (const site of ['cross-site', 'same-site'])
      expect(await everywhere({ 'sec-fetch-site': site })).toEqual(['403 origin']);
    const opened = await client.get('/', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' });
    expect(opened.status).toBe(200);
    const { port, url } = client.studio;
    expect(
      (await client.get('/api/runs', { origin: url, 'sec-fetch-site': 'same-origin', host: `127.0.0.1:${port}` }))
        .status,
    ).toBe(200);
  });

  it('refuses whoever has no cookie, or another studio’s', async () => {
    for (const cookie of ['', 'attune_studio_1=x', client.cookie.replace(/=.*/, '=x'), `x${client.cookie}`]) {
      const answered = await everywhere({ cookie });
      expect(answered.filter((each) => !each.startsWith('401'))).toEqual([]);
    }
    await without('cookie', async (weak) => {
      expect((await send(weak.studio.port, '/api/runs')).status).toBe(200);
    });
  });

  it('takes changes only with the header that a form elsewhere cannot send', async () => {
    for (const { method, path } of routes().filter(({ method }) => method === 'POST'))
      for (const value of ['', '0', 'true'])
        expect((await ask(path, { method, headers: { 'x-attune-studio': value } })).json.error.code).toBe('header');
    await without('header', async (weak) => {
      const sent = { method: 'POST', body: { tags: ['x'] }, headers: { cookie: weak.cookie } };
      expect((await send(weak.studio.port, `/api/runs/${runId}/tag`, sent)).status).toBe(200);
    });
  });

  it('takes only JSON, which a form elsewhere cannot send either', async () => {
    const headers = { 'content-type': 'text/plain' };
    expect((await ask('/api/compare', { method: 'POST', headers })).status).toBe(415);
  });

  it('sends headers that let a browser neither guess types nor run or embed anything', async () => {
    const stream = await client.stream(`/api/runs/${runId}/events`);
    stream.close();
    const answers = await Promise.all(
      ['/', '/api/runs', `/api/runs/${runId}`, '/nothing'].map((path) => client.get(path)),
    );
    for (const { headers } of [stream.response, ...answers]) {
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['content-security-policy']).toContain("default-src 'self'");
      expect(headers['content-security-policy']).not.toContain('unsafe');
      expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
      expect(headers['cross-origin-resource-policy']).toBe('same-origin');
      expect(headers['access-control-allow-origin']).toBeUndefined();
    }
  });
});

describe('the token', () => {
  it('works once, and gives a cookie that scripts cannot read and other sites do not send', async () => {
    const path = client.studio.newUrl().slice(client.studio.url.length);
    const first = await send(client.studio.port, path);
    expect(first.status).toBe(200);
    expect(String(first.headers['set-cookie'])).toMatch(/; HttpOnly; SameSite=Strict; Path=\/$/);
    const second = await send(client.studio.port, path);
    expect([second.status, second.headers['set-cookie']]).toEqual([403, undefined]);
    expect((await send(client.studio.port, '/?token=guess')).status).toBe(403);
    expect((await send(client.studio.port, '/?token=')).status).toBe(403);
  });

  it('opens nothing but the page', async () => {
    const token = client.studio.newUrl().split('token=')[1];
    expect((await send(client.studio.port, `/api/runs?token=${token}`)).status).toBe(401);
  });
});

describe('an address that others can reach', () => {
  it('needs a token of its own that cannot be guessed', async () => {
    const options = { root, port: 0, version: '1' };
    await expect(startStudio({ ...options, host: '0.0.0.0' })).rejects.toThrow(/--token-env/);
    await expect(startStudio({ ...options, host: '0.0.0.0', token: '' })).rejects.toThrow(/--token-env/);
    await expect(startStudio({ ...options, host: '0.0.0.0', token: 'short' })).rejects.toThrow(/at least 16/);
  });

  it('lets whoever has it in, and answers to its own names only', async () => {
    const token = 'a-long-token-of-our-own';
    await using open = await startStudio({
      root,
      port: 0,
      version: '1',
      host: '0.0.0.0',
      token,
      cache: `${root}-cache`,
    });
    for (let i = 0; i < 2; i++) expect((await send(open.port, `/?token=${token}`)).status).toBe(200);
    expect((await send(open.port, '/api/runs')).status).toBe(401);
    expect((await send(open.port, `/?token=${token}`, { headers: { host: 'evil.example' } })).status).toBe(403);
    expect([...hostsOf('10.1.2.3', 80)]).toContain('10.1.2.3');
    expect([...hostsOf('127.0.0.1', 7860)].sort()).toEqual(['127.0.0.1:7860', '[::1]:7860', 'localhost:7860']);
  });
});

describe('ids and paths', () => {
  it('leads nowhere outside: encoded, upper-case, links, hidden bytes', async () => {
    const outside = temporaryFolder();
    makeRun(outside, 'secret');
    symlinkSync(join(outside, 'secret'), join(root, 'link'));
    const listed = (await client.get('/api/runs')).json.map(({ name }: { name: string }) => name);
    expect(listed).toEqual(['run']);
    const escapes = [
      ...['..', '%2e%2e', '%2e%2e%2fsecret', '..%2f..%2fetc%2fpasswd', '.%00./x', 'link', 'LINK', runId.toUpperCase()],
      ...['run', '%72un', `${runId}%00`, `${runId}/../..`, `${runId}.`, 'a'.repeat(500)],
    ];
    for (const id of escapes)
      for (const rest of ['', '/metrics', '/console', '/events', '/report', '/rollouts'])
        expect([`${id}${rest}`, (await client.get(`/api/runs/${id}${rest}`)).status]).toEqual([`${id}${rest}`, 404]);
    for (const path of [
      '/../package.json',
      '/assets/../../package.json',
      '/%2e%2e/package.json',
      '/src/index.ts',
      '//etc/passwd',
    ])
      expect((await client.get(path)).status).toBe(404);
    removeFolder(outside);
  });

  it('refuses a run that was replaced by a link after it was listed', async () => {
    const [here, outside] = [temporaryFolder(), temporaryFolder()];
    const path = makeRun(here, 'a');
    const other = await openStudio({ root: here });
    const [{ id }] = (await other.get('/api/runs')).json;
    removeFolder(path);
    symlinkSync(makeRun(outside, 'a'), path);
    expect((await other.get(`/api/runs/${id}/console`)).status).toBe(404);
    await other.studio.close();
    removeFolder(here);
    removeFolder(outside);
  });

  it('serves assets from a fixed list, read at the start', async () => {
    const page = temporaryFolder();
    mkdirSync(join(page, 'assets'));
    writeFileSync(join(page, 'index.html'), '<!doctype html>the page');
    writeFileSync(join(page, 'assets', 'app-1.js'), 'run()');
    symlinkSync('/etc/passwd', join(page, 'assets', 'passwd.js'));
    const other = await openStudio({ root, page });
    writeFileSync(join(page, 'assets', 'late.js'), 'late()');
    expect((await other.get('/')).text).toContain('the page');
    expect((await other.get('/assets/app-1.js')).headers['content-type']).toContain('javascript');
    expect((await other.get('/assets/passwd.js')).status).toBe(404);
    expect((await other.get('/assets/late.js')).status).toBe(404);
    expect((await client.get('/')).text).toContain('npm run build');
    await other.studio.close();
    removeFolder(page);
  });
});

describe('clients that take too much', () => {
  it('refuses bodies that are too large, by their header and by their bytes', async () => {
    const large = JSON.stringify({ ids: ['x'.repeat(3 << 20)] });
    expect((await ask('/api/compare', { method: 'POST', body: large })).status).toBe(413);
    const small = await openStudio({ root, bodyLimit: 100 });
    const chunked = {
      cookie: small.cookie,
      'x-attune-studio': '1',
      'transfer-encoding': 'chunked',
      'content-length': '',
    };
    const { 'content-length': _, ...headers } = chunked;
    const answer = await sendChunked(small.studio.port, '/api/compare', headers, 'y'.repeat(1000));
    expect(answer).toContain('413');
    await small.studio.close();
  });

  it('gives up a client that leaves its stream unread', async () => {
    let sent = 0;
    const router = new Router(
      [
        get('/endless', async ({ stream: open }) => {
          const stream = open();
          for (; stream.open; sent++) await stream.send('piece', 'x'.repeat(1 << 16));
        }),
      ],
      { patienceMs: 200 },
    );
    const server = createServer();
    const answered = new Promise<void>((resolve) => {
      server.on('request', (request, response) => void router.answer(request, response).then(resolve));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, '127.0.0.1', () => socket.write('GET /endless HTTP/1.1\r\nHost: x\r\n\r\n'));
    socket.on('error', () => {}).pause();
    await answered;
    // What the system buffers for a connection, and no more.
    expect(sent).toBeLessThan(1000);
    socket.destroy();
    server.close();
  });
});

describe('--read-only', () => {
  it('refuses every change', async () => {
    const quiet = await openStudio({ root, readOnly: true });
    const harmless = ['compare', 'whatif', 'check', 'explore', 'send', 'stop'];
    for (const { method, path } of quiet.studio.studio.routes) {
      if (method !== 'POST') continue;
      const isHarmless = harmless.includes(path.split('/').at(-1) as string) && path !== '/api/runs/:id/stop';
      const { status, json } = await quiet.post(path.replace(':id', runId).replace(/:\w+/, 'policy'));
      if (isHarmless) expect([path, json.error?.code]).not.toEqual([path, 'read_only']);
      else expect([path, status, json.error.code]).toEqual([path, 403, 'read_only']);
    }
    expect((await quiet.get('/api/session')).json.readOnly).toBe(true);
    await quiet.studio.close();
    await without('readOnly', async (weak) => {
      expect((await weak.post(`/api/runs/${runId}/tag`, { tags: ['y'] })).status).toBe(200);
    });
    expect(existsSync(join(root, 'run', 'tags.json'))).toBe(true);
  });
});

function sendChunked(port: number, path: string, headers: Record<string, string>, body: string): Promise<string> {
  return new Promise((resolve) => {
    let read = '';
    const socket = connect(port, '127.0.0.1', () => {
      const all = { Host: `127.0.0.1:${port}`, 'Content-Type': 'application/json', ...headers };
      const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
      socket.write(`POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
      socket.write(`${body.length.toString(16)}\r\n${body}\r\n`);
      // The answer waits for a client that is still sending: it would not read it.
      setTimeout(() => socket.write('0\r\n\r\n'), 100);
    });
    socket.on('data', (piece) => {
      read += piece;
    });
    socket.on('close', () => resolve(read));
    socket.on('error', () => resolve(read));
  });
}
