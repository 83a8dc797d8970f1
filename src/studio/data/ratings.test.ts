import { appendFileSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, openStudio, removeFolder, temporaryFolder } from '../studio.test-support.ts';

const root = temporaryFolder();
const pairs = join(root, 'pairs.jsonl');
const pair = (name: string) => ({ prompt: `Q${name}`, chosen: `good ${name}`, rejected: `bad ${name}` });
const write = (...names: string[]) =>
  writeFileSync(pairs, names.map((name) => `${JSON.stringify(pair(name))}\n`).join(''));
let client: Client;
beforeAll(async () => {
  client = await openStudio({ root });
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});
const log = () =>
  join(root, 'ratings', readdirSync(join(root, 'ratings')).find((name) => name.endsWith('.log')) as string);
const exported = async () => {
  const { json } = await client.post('/api/ratings/export', { dataset: pairs });
  const rows = readFileSync(json.path, 'utf8').trimEnd().split('\n');
  return { ...json, rows: rows.map((row) => JSON.parse(row)) };
};

describe('ratings', () => {
  it('belong to the pair, wherever its row is, and say how many no longer fit', async () => {
    write('A', 'B', 'C');
    const body = { dataset: pairs, first: 'chosen' };
    for (const index of [0, 1]) await client.post('/api/ratings', { ...body, index, vote: '2' });
    write('Z', 'A', 'C');
    const found = (await client.get(`/api/ratings?dataset=${encodeURIComponent(pairs)}`)).json;
    expect(found.ratings.map(({ index }: { index: number }) => index)).toEqual([1]);
    expect([found.tally.rated, found.tally.lost, found.next]).toEqual([1, 1, 0]);
    const { pairs: count, lost, rows } = await exported();
    expect([count, lost]).toEqual([1, 1]);
    expect(rows[0]).toMatchObject({ chosen: 'bad A', rejected: 'good A', index: 1 });
    write('A', 'B', 'C');
    expect((await exported()).pairs).toBe(2);
    expect((await client.post('/api/ratings/undo', { dataset: pairs })).json.undone.index).toBe(1);
  });

  it('shows guidelines, but none that are a link to the outside', async () => {
    const outside = temporaryFolder();
    writeFileSync(join(outside, 'secret'), 'secret');
    symlinkSync(join(outside, 'secret'), join(root, 'GUIDELINES.md'));
    const asked = `/api/ratings?dataset=${encodeURIComponent(pairs)}`;
    expect((await client.get(asked)).json.guidelines).toBeUndefined();
    rmSync(join(root, 'GUIDELINES.md'));
    writeFileSync(join(root, 'GUIDELINES.md'), 'Be kind.');
    expect((await client.get(asked)).json.guidelines).toBe('Be kind.');
    removeFolder(outside);
  });

  it('refuses a vote on a pair that has gone from its row', async () => {
    const shown = (await client.get(`/api/data/examples?dataset=${encodeURIComponent(pairs)}`)).json.rows[0];
    write('Z', 'A', 'B', 'C');
    const vote = { dataset: pairs, first: 'chosen', index: 0, pair: shown.pair, vote: '1' };
    expect((await client.post('/api/ratings', vote)).status).toBe(409);
  });

  it('of earlier versions stay with their row until the pair has its own', async () => {
    write('A', 'B', 'C');
    const old = { index: 2, vote: '1', first: 'chosen', agrees: true, voter: 'me', time: 1 };
    appendFileSync(log(), JSON.stringify(old)); // Without its line's end, too.
    const again = await openStudio({ root });
    const body = { dataset: pairs, first: 'chosen', vote: '2' };
    const before = (await again.get(`/api/ratings?dataset=${encodeURIComponent(pairs)}`)).json;
    expect(before.ratings.find(({ index }: { index: number }) => index === 2)).toMatchObject({ agrees: true });
    const { tally } = (await again.post('/api/ratings', { ...body, index: 2 })).json;
    await again.studio.close();
    expect(tally).toMatchObject({ rated: 2, agreement: { value: 0 } });
    expect(tally.lost).toBeUndefined();
    const lines = readFileSync(log(), 'utf8').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).index)).toEqual([0, 1, 1, 2, 2]);
  });
});
