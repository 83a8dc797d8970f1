import { randomBytes } from 'node:crypto';
import { readdirSync, statSync, symlinkSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { resolveModel } from './hub.ts';
import { cache, hub, isWeights, once, options, repos, TOKEN, useHub, weights } from './repos.test-support.ts';
import { startHub } from './server.test-support.ts';

useHub();

describe('faults', () => {
  /** Part of the weights is in the cache: all other files are smaller. */
  const arrived = () => {
    const blobs = join(cache, 'models--org--whole', 'blobs');
    return readdirSync(blobs).some((name) => name.endsWith('.incomplete') && statSync(join(blobs, name)).size > 1000);
  };

  it('goes on after a cut connection from where it stopped', async () => {
    const cut = once({ cutAfter: 100_000, arrived });
    hub.fault = (request) => (isWeights(request) ? cut() : undefined);
    const folder = await resolveModel('org/whole', options());
    expect(await readFile(join(folder, 'model.safetensors'))).toEqual(weights);
    const ranges = hub.seen.filter(isWeights).map((request) => request.range);
    expect(ranges).toEqual([undefined, expect.stringMatching(/^bytes=[1-9]\d*-$/)]);
  });

  it('starts over where the server knows no ranges', async () => {
    const cut = once({ cutAfter: 100_000, arrived });
    hub.fault = (request) => (isWeights(request) ? (cut() ?? { wholeFile: true }) : undefined);
    expect(await readFile(join(await resolveModel('org/whole', options()), 'model.safetensors'))).toEqual(weights);
  });

  it('leaves nothing half-valid when the connection never holds, and resumes the next time', async () => {
    hub.fault = (request) =>
      isWeights(request) ? (request.range === undefined ? { cutAfter: 50_000, arrived } : { status: 503 }) : undefined;
    await expect(resolveModel('org/whole', options())).rejects.toThrow(/org\/whole\/model.safetensors .*503/);
    expect(await readdir(join(cache, 'models--org--whole', 'snapshots', hub.commit))).not.toContain(
      'model.safetensors',
    );
    await expect(resolveModel('org/whole', { ...options(), offline: true })).rejects.toThrow('lacks model.safetensors');
    hub.fault = () => undefined;
    hub.seen.length = 0;
    expect(await readFile(join(await resolveModel('org/whole', options()), 'model.safetensors'))).toEqual(weights);
    expect(hub.seen.filter(isWeights).map((request) => request.range)).toEqual([
      expect.stringMatching(/^bytes=[1-9]\d*-$/),
    ]);
    const blobs = await readdir(join(cache, 'models--org--whole', 'blobs'));
    expect(blobs.filter((name) => name.includes('incomplete'))).toEqual([]);
  });

  it.each([
    ['shorter than listed', weights.subarray(0, 1000), '1000 bytes where the hub lists 300000'],
    ['longer than listed', Buffer.concat([weights, weights]), 'bytes where the hub lists 300000'],
    ['of the right size and wrong content', randomBytes(weights.length), 'SHA-256'],
  ])('refuses a file %s', async (_, content, message) => {
    hub.fault = (request) => (isWeights(request) ? { content } : undefined);
    await expect(resolveModel('org/whole', options())).rejects.toThrow(message);
    const blobs = await readdir(join(cache, 'models--org--whole', 'blobs'));
    expect(blobs.filter((name) => name.includes('incomplete') || name.length === 64)).toEqual([]);
  });

  it('mends a damaged part of an earlier run by starting over', async () => {
    const bad = once({ content: randomBytes(weights.length) });
    hub.fault = (request) => (isWeights(request) ? bad() : undefined);
    expect(await readFile(join(await resolveModel('org/whole', options()), 'model.safetensors'))).toEqual(weights);
  });

  it('tries again after 500, 429 with Retry-After, and silence', async () => {
    const faults = [{ status: 500 }, { status: 429, headers: { 'retry-after': '0.05' } }];
    hub.fault = (request) => (request.url.includes('/revision/') ? faults.shift() : undefined);
    const silent = [{ hang: true }, { stallAfter: 70_000 }];
    const listing = hub.fault;
    hub.fault = (request) => listing(request) ?? (isWeights(request) ? silent.shift() : undefined);
    const begin = performance.now();
    // Many retries: on a busy machine, more than these two answers may come too late.
    const impatient = { ...options(), timeoutMs: 600, retries: 50 };
    expect(await readdir(await resolveModel('org/whole', impatient))).toContain('model.safetensors');
    expect(performance.now() - begin).toBeGreaterThan(1200);
    expect([faults, silent]).toEqual([[], []]);
    expect(hub.seen.filter((request) => request.url.includes('/revision/')).length).toBeGreaterThanOrEqual(3);
  });

  it('gives up on a server that never answers', async () => {
    hub.fault = () => ({ hang: true });
    await expect(resolveModel('org/whole', { ...options(), timeoutMs: 50 })).rejects.toThrow(/no answer within 0.05 s/);
  });

  it('stops when told to', async () => {
    hub.fault = (request) => (isWeights(request) ? { hang: true } : undefined);
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('enough')), 100);
    await expect(resolveModel('org/whole', { ...options(), signal: stop.signal })).rejects.toThrow('enough');
  });

  it.each([
    ['org/absent', undefined, 'There is no model "org/absent"'],
    ['org/whole@nope', undefined, 'org/whole has no revision "nope"'],
    ['org/whole', { status: 401 }, 'does not exist on'],
    ['org/whole', { status: 403, headers: { 'x-error-code': 'GatedRepo' } }, 'accept its licence at'],
    [
      'org/whole',
      { status: 401, headers: { 'x-error-code': 'GatedRepo', 'x-error-message': `you sent ${TOKEN}` } },
      'is gated ("you sent ***")',
    ],
    ['org/pickle', undefined, 'runs whatever code is in it'],
    ['org/gguf', undefined, 'no safetensors weights. It has: model.gguf'],
    ['./no/such/folder', undefined, 'The folder "./no/such/folder" does not exist'],
    ['', undefined, 'The name of a model is empty'],
    ['org/whole@', undefined, 'a branch, tag or commit should follow'],
    ['org/../whole', undefined, 'does not exist'],
  ])('explains %s with %j', async (name, fault, message) => {
    hub.fault = () => fault;
    const error = await resolveModel(name, options()).catch((reason) => reason);
    expect(error).toMatchObject({ name: 'UserError' });
    expect(error.message).toContain(message);
    expect(error.message).not.toContain(TOKEN);
    expect(hub.seen.filter((request) => request.url.includes('/resolve/'))).toEqual([]);
  });

  it('never follows a listing out of its folder', async () => {
    const bad = await startHub({ 'org/evil': { '../../evil.safetensors': 'x', 'config.json': '{}' } });
    await expect(resolveModel('org/evil', { ...options(), endpoint: bad.endpoint })).rejects.toThrow('unsafe');
    await bad.close();
  });

  it('does not carry the token to a next page on another host', async () => {
    const elsewhere = await startHub(repos);
    const listing = (host: string) => ({
      status: 200,
      headers: { link: `<${host}/api/models/org/whole/tree/${hub.commit}?cursor=x>; rel="next"` },
      body: '[]',
    });
    hub.fault = (request) => (request.url.includes('/tree/') ? listing(elsewhere.endpoint) : undefined);
    await expect(resolveModel('org/whole', options())).rejects.toThrow(/next page is on another host/);
    expect(elsewhere.seen).toEqual([]);
    hub.fault = (request) => (request.url.includes('recursive') ? listing(hub.endpoint) : undefined);
    expect(await readdir(await resolveModel('org/whole', options()))).toContain('model.safetensors');
    hub.fault = (request) => (request.url.includes('/tree/') ? listing(hub.endpoint) : undefined);
    await expect(resolveModel('org/whole', options())).rejects.toThrow(/has no end/);
    await elsewhere.close();
  });

  it.each(['../../../../evil', 'refs/../../x', '/etc/x', 'a\\b', '.', 'x\u0000', 'a//b'])(
    'refuses the revision %j before it asks or writes anything',
    async (revision) => {
      const error = await resolveModel(`org/whole@${revision}`, options()).catch((reason) => reason);
      expect(error).toMatchObject({ name: 'UserError' });
      expect([hub.seen.length, await readdir(cache)]).toEqual([0, []]);
    },
  );

  it.each([
    ['null', /did not say which commit/],
    ['{"sha":".."}', /did not say which commit/],
    ['{"sha":5}', /did not say which commit/],
    ['<html>', /other than JSON/],
  ])('names a revision answer of %s', async (body, message) => {
    hub.fault = (request) => (request.url.includes('/revision/') ? { status: 200, body } : undefined);
    await expect(resolveModel('org/whole', options())).rejects.toThrow(message);
  });

  it.each(['{}', 'null', '[5]', '[{"type":"file"}]', '[{"type":"file","path":"a","oid":"a/../b","size":1}]'])(
    'names a listing of %s',
    async (body) => {
      hub.fault = (request) => (request.url.includes('/tree/') ? { status: 200, body } : undefined);
      await expect(resolveModel('org/whole', options())).rejects.toThrow(/The listing of org\/whole cannot be used/);
    },
  );

  it('bounds answers that are silent, endless or too long', async () => {
    // Many retries: on a busy machine, an answer that begins too late is requested again.
    const impatient = { ...options(), timeoutMs: 60, retries: 1000 };
    hub.fault = (request) => (request.url.includes('/tree/') ? { drip: { bytes: 1, everyMs: 60_000 } } : undefined);
    await expect(resolveModel('org/whole', impatient)).rejects.toThrow(/broke off/);
    hub.fault = (request) => (request.url.includes('/tree/') ? { drip: { bytes: 1, everyMs: 5 } } : undefined);
    await expect(resolveModel('org/whole', impatient)).rejects.toThrow(/broke off/);
    hub.fault = (request) => (request.url.includes('/tree/') ? { drip: { bytes: 8e6, everyMs: 0 } } : undefined);
    await expect(resolveModel('org/whole', options())).rejects.toThrow(/longer than 64 MB/);
    hub.fault = () => ({ status: 404, drip: { bytes: 1e5, everyMs: 1 } });
    await expect(resolveModel('org/whole', options())).rejects.toThrow(/There is no model/);
  });

  it('says that it tries again', async () => {
    const notes: string[] = [];
    const task = (label: string) => ({ advance: () => {}, done: (note = '') => notes.push(`${label}: ${note}`) });
    const faults = [{ status: 503 }];
    hub.fault = () => faults.shift();
    await resolveModel('org/whole', { ...options(), tokenizerOnly: true, progress: { start: (label) => task(label) } });
    expect(notes[0]).toBe('fetching org/whole: the hub answered 503; trying again');
  });

  it('asks no hub for a name that looks like a folder', async () => {
    const error = await resolveModel('src/hubb', options()).catch((reason) => reason);
    expect(error).toMatchObject({ name: 'UserError' });
    expect(error.message).toMatch(
      /The folder "src\/hubb" does not exist; src\/ is a folder here\. Did you mean "src\/hub"/,
    );
    expect(hub.seen).toEqual([]);
    await expect(resolveModel('src/hubb@main', options())).rejects.toThrow(/There is no model "src\/hubb"/);
  });

  it('knows the folder by a path with mistakes in every part', async () => {
    await expect(resolveModel('./scr/hubb', options())).rejects.toThrow(/does not exist\. Did you mean "src\/hub"\?$/);
  });

  it('says where a link to nothing leads, and suggests no such link', async () => {
    const link = join(cache, 'modl');
    symlinkSync(join(cache, 'moved'), link);
    const told = `"${link}" is a link to ${join(cache, 'moved')}, where there is nothing.`;
    await expect(resolveModel(link, options())).rejects.toThrow(expect.objectContaining({ message: told }));
    await expect(resolveModel(join(cache, 'model'), options())).rejects.toThrow(/" does not exist\.$/);
  });

  it.each(['checkpoints/nope', 'nope/final', 'nope/step-20', 'nope/', 'nope\\final'])(
    'asks no hub for %s',
    async (name) => {
      const error = await resolveModel(name, options()).catch((reason) => reason);
      expect(error).toMatchObject({ name: 'UserError' });
      expect(error.message).toMatch(/" does not exist[.;]/); // a semicolon if a folder with its first part exists here
      expect(hub.seen).toEqual([]);
    },
  );

  it('does not quote a token that cannot be sent', async () => {
    const error = await resolveModel('org/whole', { ...options(), token: 'hf_se cret\n\u00e9' }).catch(
      (reason) => reason,
    );
    expect(error.message).toContain('HF_TOKEN');
    expect(error.message).not.toContain('cret');
  });
});
