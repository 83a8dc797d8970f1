import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { openDataset } from '../dataset.ts';
import type { Row } from '../sources/row.ts';
import { wordsTokenizer } from '../words-tokenizer.test-support.ts';
import type { TokenRecord } from './record.ts';
import type { TokenStore } from './store.ts';
import { tokenCacheFolder, tokenise } from './tokenise.ts';

const pairs = (count: number) =>
  Array.from({ length: count }, (_, i) => ({
    prompt: `Question ${i}`,
    chosen: `good ${'word '.repeat(i % 50)}end`,
    rejected: `bad ${i}`,
  }));
const open = (count: number) => openDataset(pairs(count), { shape: 'preference' });
const fresh = () => mkdtempSync(join(tmpdir(), 'attune-tokens-'));

async function contents(store: TokenStore): Promise<TokenRecord[]> {
  return store.records(Array.from({ length: store.length }, (_, i) => i));
}

describe('tokenise', () => {
  it('keeps the order over many chunks, and what it left out', async () => {
    const tokenizer = wordsTokenizer();
    await using store = await tokenise(await open(2000), tokenizer, { cache: fresh(), maxLength: 50 });
    const records = await contents(store);
    expect(store.tally.dropped['too long']).toBe(2000 - store.length);
    expect(store.length).toBe(1680);
    expect(records.every((record, i) => i === 0 || record.example > (records[i - 1] as TokenRecord).example)).toBe(
      true,
    );
    const last = records.at(-1) as TokenRecord;
    expect(tokenizer.decode(last.sequences[1]?.ids ?? [])).toContain(`bad ${last.example}`);
    expect(store.totalTokens).toBe(
      records.reduce(
        (sum, { sequences }) => sum + (sequences[0]?.ids.length ?? 0) + (sequences[1]?.ids.length ?? 0),
        0,
      ),
    );
  });

  it('has a fingerprint that follows the examples and their order', async () => {
    const of = async (rows: number, shuffled = false) => {
      const all = await (await open(rows)).toArray();
      const given = await openDataset((shuffled ? all.reverse() : all) as unknown as Row[], { shape: 'preference' });
      await using store = await tokenise(given, wordsTokenizer(), { cache: false });
      return store.fingerprint;
    };
    const first = await of(30);
    expect(await of(30)).toBe(first);
    expect(new Set([first, await of(15), await of(60), await of(30, true)]).size).toBe(4);
  });

  it('tokenises once for the same content, tokenizer and options', async () => {
    const cache = fresh();
    const tokenizer = wordsTokenizer();
    const first = await tokenise(await open(30), tokenizer, { cache });
    const before = await contents(first);
    const { encoded } = tokenizer;
    await using again = await tokenise(await open(30), tokenizer, { cache });
    expect(tokenizer.encoded).toBe(encoded);
    expect(await contents(again)).toEqual(before);
    for (const change of [{ maxLength: 900 }, { maxPromptLength: 3 }, { format: 'transcript' as const }]) {
      const used: number = tokenizer.encoded;
      await (await tokenise(await open(30), tokenizer, { cache, ...change })).close();
      expect(tokenizer.encoded).toBeGreaterThan(used);
    }
    const other = wordsTokenizer({ name: 'another' });
    await (await tokenise(await open(30), other, { cache })).close();
    expect(other.encoded).toBeGreaterThan(0);
    expect(readdirSync(cache)).toHaveLength(5);
    await first.close();
  });

  it.each([
    ['a flipped byte among the tokens', (folder: string) => flip(join(folder, 'tokens.bin'), 100)],
    ['a flipped byte in the index', (folder: string) => flip(join(folder, 'index.bin'), 20)],
    ['a shortened file', (folder: string) => truncateSync(join(folder, 'tokens.bin'), 64)],
    ['broken meta data', (folder: string) => writeFileSync(join(folder, 'meta.json'), '{"format":')],
    ['another version', (folder: string) => writeFileSync(join(folder, 'meta.json'), '{"format":0}')],
  ])('notices %s and builds anew', async (_, harm) => {
    const cache = fresh();
    const tokenizer = wordsTokenizer();
    const store = await tokenise(await open(20), tokenizer, { cache });
    const before = await contents(store);
    await store.close();
    harm(join(cache, readdirSync(cache)[0] as string));
    const { encoded } = tokenizer;
    await using rebuilt = await tokenise(await open(20), tokenizer, { cache });
    expect(tokenizer.encoded).toBe(2 * encoded);
    expect(await contents(rebuilt)).toEqual(before);
  });

  it('a cache that cannot be written is named, with the way to another', async () => {
    const file = join(fresh(), 'file');
    writeFileSync(file, '');
    await expect(tokenise(await open(20), wordsTokenizer(), { cache: join(file, 'tokens') })).rejects.toThrow(
      /^The cache of tokens, .*file\/tokens, cannot be written: .* is a file.*\. Name another folder by .* ATTUNE_CACHE\.$/,
    );
  });

  it('removes after a day what a killed process left in the cache', async () => {
    const cache = fresh();
    const left = ['.writing-old', '.writing-now'].map((name) => join(cache, name));
    for (const path of left) {
      mkdirSync(path, { recursive: true });
      writeFileSync(join(path, 'tokens.bin'), 'half');
    }
    const days = Date.now() / 1000 - 2 * 24 * 60 * 60;
    utimesSync(join(left[0] as string, 'tokens.bin'), days, days);
    await (await tokenise(await open(20), wordsTokenizer(), { cache })).close();
    expect(left.map((path) => existsSync(path))).toEqual([false, true]);
  });

  it('leaves nothing behind where nothing is to be kept, or where it fails', async () => {
    const cache = fresh();
    vi.stubEnv('TMPDIR', fresh()); // a folder of its own: the common one has other programs' stores
    onTestFinished(() => void vi.unstubAllEnvs());
    const rows = () => pairs(5);
    await using store = await tokenise(await openDataset(rows, { shape: 'preference' }), wordsTokenizer(), { cache });
    expect(await contents(store)).toHaveLength(5);
    const failing = { ...wordsTokenizer(), encodeBatch: async () => Promise.reject(new Error('out of breath')) };
    await expect(tokenise(await open(2000), failing, { cache })).rejects.toThrow('out of breath');
    expect(readdirSync(cache)).toEqual([]);
    const left = readdirSync(tmpdir()).filter((name) => existsSync(join(tmpdir(), name, 'tokens.bin')));
    expect(left).toEqual([]);
  });

  it('says that everything is too long', async () => {
    await expect(tokenise(await open(5), wordsTokenizer(), { cache: false, maxLength: 2 })).rejects.toThrow(
      /all 5 examples are longer than 2 tokens. Raise --max-length/,
    );
  });

  it('stops when told to', async () => {
    const aborted = AbortSignal.abort(new Error('enough'));
    await expect(tokenise(await open(5), wordsTokenizer(), { cache: fresh(), signal: aborted })).rejects.toThrow(
      'enough',
    );
  });

  it('keeps stores where the environment says', () => {
    const { ATTUNE_CACHE } = process.env;
    process.env.ATTUNE_CACHE = '/somewhere';
    expect(tokenCacheFolder()).toBe('/somewhere/tokens');
    delete process.env.ATTUNE_CACHE;
    expect(tokenCacheFolder()).toMatch(/attune\/tokens$/);
    if (ATTUNE_CACHE !== undefined) process.env.ATTUNE_CACHE = ATTUNE_CACHE;
  });

  it('says that a record is not there, and that a store is closed', async () => {
    const store = await tokenise(await open(20), wordsTokenizer(), { cache: fresh() });
    for (const index of [-1, 20, 0.5])
      await expect(store.records([index])).rejects.toThrow(`20 records, from 0 on: there is none at ${index}`);
    await store.close();
    await expect(store.records([0])).rejects.toThrow('The token store is closed.');
  });
});

function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(path, bytes);
}
