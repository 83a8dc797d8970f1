import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, rm, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { datasetHub, fetchRepoFiles, listRepoFiles, resolveModel } from './hub.ts';
import { cache, hub, isWeights, options, TOKEN, useHub, weights } from './repos.test-support.ts';

useHub();

describe('fetching', () => {
  it('takes only what loading needs, in the layout of the Python cache', async () => {
    const folder = await resolveModel('org/whole', options());
    expect(folder).toBe(join(cache, 'models--org--whole', 'snapshots', hub.commit));
    expect((await readdir(folder)).sort()).toEqual([
      'config.json',
      'model.safetensors',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    expect(await readFile(join(folder, 'model.safetensors'))).toEqual(weights);
    const sha256 = createHash('sha256').update(weights).digest('hex');
    expect(await readlink(join(folder, 'model.safetensors'))).toBe(join('..', '..', 'blobs', sha256));
    expect(await readFile(join(cache, 'models--org--whole', 'refs', 'main'), 'utf8')).toBe(hub.commit);
    const requests = hub.seen.length;
    expect(await resolveModel('org/whole', options())).toBe(folder);
    expect(hub.seen.slice(requests).filter((request) => request.url.includes('/resolve/'))).toEqual([]);
  });

  it('takes the shards that the index names, and adapters', async () => {
    expect((await readdir(await resolveModel('org/sharded', options()))).sort()).toEqual([
      'config.json',
      'model-1.safetensors',
      'model-2.safetensors',
      'model.safetensors.index.json',
    ]);
    expect(await readdir(await resolveModel('org/adapter', options()))).toEqual([
      'adapter_config.json',
      'adapter_model.safetensors',
    ]);
  });

  it('takes a revision, and the tokenizer alone', async () => {
    const folder = await resolveModel('org/whole@refs/pr/1', { ...options(), tokenizerOnly: true });
    expect((await readdir(folder)).sort()).toEqual(['config.json', 'tokenizer.json', 'tokenizer_config.json']);
    expect(await readFile(join(cache, 'models--org--whole', 'refs', 'refs', 'pr', '1'), 'utf8')).toBe(hub.commit);
  });

  it('takes the files of a dataset by pattern and reports bytes', async () => {
    let total = 0;
    let advanced = 0;
    const progress = {
      start: (_: string, all = 0) => {
        total = all;
        const advance = (bytes = 1) => {
          advanced += bytes;
        };
        return { advance, done: () => {} };
      },
    };
    const fetched = await fetchRepoFiles({
      ...options(),
      repo: 'org/data',
      type: 'dataset',
      patterns: ['main/*.parquet'],
      progress,
    });
    expect(fetched.files).toEqual(['main/train.parquet', 'main/test.parquet']);
    expect(await readFile(join(fetched.folder, 'main/test.parquet'))).toEqual(weights);
    expect([total, advanced]).toEqual([301_000, 301_000]);
    expect(
      (await listRepoFiles({ ...options(), repo: 'org/data', type: 'dataset' })).files.map((file) => file.size),
    ).toEqual([0, 1000, 300_000, 2]);
    await expect(
      fetchRepoFiles({ ...options(), repo: 'org/data', type: 'dataset', patterns: ['main/nope.parquet'] }),
    ).rejects.toThrow('org/data has not main/nope.parquet');
  });

  it('gives datasets their local paths', async () => {
    const { list, fetch, isCached } = datasetHub(options());
    expect(await list('org/data')).toContain('other/x.jsonl');
    const [path = ''] = await fetch('org/data', ['other/x.jsonl'], 'v1');
    expect(await readFile(path, 'utf8')).toBe('{}');
    expect([await isCached('org/data'), await isCached('org/whole')]).toEqual([true, false]);
  });

  it('sends the token to the hub only, not to where it redirects', async () => {
    await resolveModel('org/whole', options());
    const to = (server: string) =>
      new Set(hub.seen.filter((request) => request.server === server).map((request) => request.authorization));
    expect(to('hub')).toEqual(new Set([`Bearer ${TOKEN}`]));
    expect(to('cdn')).toEqual(new Set([undefined]));
  });

  it('fetches a file once for two callers at once', async () => {
    const [a, b] = await Promise.all([resolveModel('org/whole', options()), resolveModel('org/whole', options())]);
    expect(a).toBe(b);
    expect(hub.seen.filter(isWeights)).toHaveLength(1);
  });

  it.each([
    ['of a process that ended', `${hostname()} 99999999`, 0],
    ['of another machine that went silent', 'elsewhere 1', 60_000],
  ])('takes over the lock %s', async (_, owner, age) => {
    const folder = join(cache, '.locks', 'models--org--whole');
    const lock = join(folder, `${createHash('sha256').update(weights).digest('hex')}.attune`);
    await mkdir(folder, { recursive: true });
    await writeFile(lock, owner);
    await utimes(lock, new Date(Date.now() - age), new Date(Date.now() - age));
    await resolveModel('org/whole', options());
    expect(await readdir(folder)).toEqual([]);
  });

  it('waits for another process that holds the lock', async () => {
    const folder = join(cache, '.locks', 'models--org--whole');
    const lock = join(folder, `${createHash('sha256').update(weights).digest('hex')}.attune`);
    await mkdir(folder, { recursive: true });
    await writeFile(lock, `${hostname()} ${process.ppid}`);
    let released = false;
    setTimeout(() => {
      released = true;
      void rm(lock);
    }, 300);
    await resolveModel('org/whole', options());
    expect(released).toBe(true);
  });
});

describe('without the hub', () => {
  it('uses the cached copy, offline or with the server gone', async () => {
    const folder = await resolveModel('org/whole', options());
    const requests = hub.seen.length;
    const offline = {
      ...options(),
      endpoint: undefined,
      cacheDir: undefined,
      env: { HF_HUB_CACHE: cache, HF_HUB_OFFLINE: '1' },
    };
    expect(await resolveModel('org/whole', offline)).toBe(folder);
    expect(hub.seen.length).toBe(requests);
    await hub.close();
    const gone = { ...options(), retries: 0 };
    expect(await resolveModel('org/whole', gone)).toBe(folder);
    await expect(resolveModel('org/sharded', offline)).rejects.toMatchObject({
      name: 'UserError',
      message: expect.stringMatching(/^org\/sharded is not in the cache .*HF_HUB_OFFLINE/),
    });
    await expect(resolveModel('org/sharded', gone)).rejects.toMatchObject({
      name: 'HubUnreachable',
      message: expect.stringMatching(/not in the cache.*ECONNREFUSED/),
    });
    // The network may be at fault rather than the name.
    await expect(resolveModel('srcc', gone)).rejects.toMatchObject({
      name: 'HubUnreachable',
      message: expect.stringMatching(/ECONNREFUSED.* Nor is there a folder "srcc" here\. Did you mean "src"\?$/),
    });
    await expect(resolveModel('srcc@main', gone)).rejects.not.toThrow(/folder "srcc"/);
  });

  it('tells a part from the whole', async () => {
    await resolveModel('org/whole', { ...options(), tokenizerOnly: true });
    await expect(resolveModel('org/whole', { ...options(), offline: true })).rejects.toThrow('lacks model.safetensors');
    await resolveModel('org/whole', { ...options(), offline: true, tokenizerOnly: true });
  });

  it('takes a folder as it is, but not its pickles', async () => {
    await writeFile(join(cache, 'config.json'), '{}');
    expect(await resolveModel(cache)).toBe(cache);
    execFileSync('mkfifo', [join(cache, 'tokenizer.json')]);
    await expect(resolveModel(cache)).rejects.toThrow(/tokenizer\.json is not a regular file/);
    await rm(join(cache, 'tokenizer.json'));
    await writeFile(join(cache, 'pytorch_model.bin'), 'x');
    await expect(resolveModel(cache)).rejects.toThrow('Python pickle');
  });
});
