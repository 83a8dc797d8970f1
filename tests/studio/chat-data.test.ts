/** Chat, votes, datasets and ratings over the tiny model, with a reward model that this test trains for a moment. */
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDataset } from '../../src/data/index.ts';
import type { Job, RatingsAnswer } from '../../src/studio/api.ts';
import { type Client, openStudio, removeFolder, temporaryFolder } from '../../src/studio/studio.test-support.ts';
import { preferenceRows } from '../../src/tasks/index.ts';
import { trainReward } from '../../src/trainers/reward/reward.ts';
import { otherTiny } from '../support/other-tiny.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');
const root = temporaryFolder();
const pairs = join(root, 'pairs.jsonl');
let client: Client;
let reward: string;

beforeAll(async () => {
  const rows = preferenceRows({ tasks: 'chain_sum:1', count: 12, seed: 3 });
  writeFileSync(pairs, [...rows].map((row) => `${JSON.stringify(row)}\n`).join(''));
  writeFileSync(join(root, 'GUIDELINES.md'), 'Prefer the right sum.');
  const { folder } = await trainReward({
    ...{ model: tiny, dataset: pairs, maxSteps: 1, batchSize: 2, gradAccum: 1, evalSteps: -1, lr: 1e-5 },
    ...{ outputDir: root, logDir: join(root, 'logs'), runName: 'rm' },
  });
  reward = join(folder, 'final');
  symlinkSync(tiny, join(root, 'tiny-link'));
  client = await openStudio({ root, modelFolders: [join(import.meta.dirname, '../../models')] });
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});

async function finished(job: Job): Promise<Job> {
  const stream = await client.stream(`/api/jobs/${job.id}/events`);
  await stream.until((events) => events.at(-1)?.data.state !== 'running' && events.length > 0);
  return stream.events.at(-1)?.data;
}

const load = async (slots: string[], rewardModel?: string) =>
  finished((await client.post('/api/chat/load', { slots, rewardModel })).json);
const messages = [{ role: 'user', content: 'Spell "abu" backward. Answer with one word.' }];
const sampling = { temperature: 0, maxTokens: 24, seed: 1 };

async function send(turn: string, more: object = {}) {
  const body = { turn, messages, sampling, ...more };
  const stream = await client.stream('/api/chat/send', { method: 'POST', body });
  await stream.until((events) => events.some(({ event }) => event === 'done'));
  return stream.events;
}

describe('chat', () => {
  it('loads only what lies in its folders', async () => {
    for (const model of ['/etc', '../..', './x', '/tmp', `${root}/../x`, 'a\0b'])
      expect([model, (await client.post('/api/chat/load', { slots: [model] })).status]).toEqual([model, 404]);
    expect((await client.post('/api/chat/send', { turn: 'a', messages })).status).toBe(409);
  });

  it('streams a reply piece by piece, scored by the reward model', async () => {
    expect(await load([tiny], reward)).toMatchObject({ state: 'done', title: `${tiny}, ${reward}` });
    expect((await client.get('/api/chat/state')).json).toMatchObject({
      slots: [{ model: tiny, name: 'tiny' }],
      rewardModel: reward,
    });
    const events = await send('one');
    const end = events.find(({ event }) => event === 'end')?.data;
    const text = events
      .filter(({ event }) => event === 'token')
      .map(({ data }) => data.text)
      .join('');
    expect(end).toMatchObject({ side: 0, text, finish: 'stop', score: expect.any(Number) });
    expect(text).toContain('<answer>');
    const again = await send('two');
    expect(again.find(({ event }) => event === 'end')?.data.text).toBe(text);
    expect((await client.post('/api/chat/vote', { turn: 'one', choice: 1 })).status).toBe(409);
    const { json } = await client.post('/api/chat/rate', { turn: 'one', side: 0, good: true });
    expect(json.total).toBe(1);
    const rated = await (await openDataset(join(root, 'thumbs.jsonl'), { shape: 'unpaired' })).toArray();
    expect(rated[0]).toMatchObject({ completion: text, label: true });
  });

  it('stops a reply', async () => {
    const body = {
      turn: 'long',
      messages: [{ role: 'user', content: 'Count.' }],
      sampling: { temperature: 1.9, maxTokens: 4000 },
    };
    const stream = await client.stream('/api/chat/send', { method: 'POST', body });
    await stream.until((events) => events.some(({ event }) => event === 'begin'));
    await client.post('/api/chat/stop', { turn: 'long' });
    await stream.until((events) => events.some(({ event }) => event === 'done'));
    expect(['stopped', 'stop']).toContain(stream.events.find(({ event }) => event === 'end')?.data.finish);
  });

  it('asks two models blind, takes the vote as a preference, then tells who is who', async () => {
    const other = otherTiny(join(root, 'other'));
    expect((await load([tiny, other], reward)).state).toBe('done');
    const events = await send('blind', { blind: true });
    expect(events.filter(({ event }) => event === 'begin').every(({ data }) => data.name === undefined)).toBe(true);
    expect(events.filter(({ event }) => event === 'end').every(({ data }) => data.score === undefined)).toBe(true);
    const { json } = await client.post('/api/chat/vote', { turn: 'blind', choice: 2 });
    expect(json.models.toSorted()).toEqual([tiny, other].toSorted());
    expect(json.scores).toHaveLength(2);
    expect((await client.post('/api/chat/vote', { turn: 'blind', choice: 1 })).status).toBe(409);
    const row = JSON.parse(readFileSync(join(root, 'votes.jsonl'), 'utf8'));
    expect(row).toMatchObject({
      prompt: messages,
      chosen_model: json.models[1],
      settings: { max_tokens: 24, seed: 1 },
    });
    await send('tie', { blind: true });
    await client.post('/api/chat/vote', { turn: 'tie', choice: '=' });
    expect((await client.get('/api/chat/votes')).json).toMatchObject({
      total: 2,
      ties: 1,
      share: { low: expect.any(Number) },
    });
    const read = await (await openDataset(join(root, 'votes.jsonl'), { shape: 'preference' })).toArray();
    expect(read).toHaveLength(1);
  });
});

describe('data', () => {
  const named = `dataset=${encodeURIComponent(pairs)}`;

  it('lists files that are data, and explores one', async () => {
    const { datasets } = (await client.get('/api/data')).json;
    expect(datasets.map(({ name }: { name: string }) => name)).toContain('pairs.jsonl');
    expect(datasets.map(({ name }: { name: string }) => name)).not.toContain('rm/metrics.jsonl');
    const job = await finished((await client.post('/api/data/explore', { dataset: pairs })).json);
    expect(job).toMatchObject({ state: 'done', result: { shape: 'preference', examples: 12 } });
    expect((await client.get('/api/data/examples?dataset=/etc/passwd')).status).toBe(404);
  });

  it('searches examples', async () => {
    const all = (await client.get(`/api/data/examples?${named}&limit=5`)).json;
    expect(all).toMatchObject({ total: 12, read: 12, shape: 'preference' });
    expect(all.rows).toHaveLength(5);
    const [row] = all.rows;
    const own = (
      await client.get(`/api/data/examples?${named}&q=${encodeURIComponent(row.responses[0].text.slice(0, 40))}`)
    ).json;
    expect(own.rows.map(({ index }: { index: number }) => index)).toContain(row.index);
    expect((await client.get(`/api/data/examples?${named}&q=zzzz`)).json.total).toBe(0);
  });

  it('rates ten pairs, undoes, survives a restart, exports preferences', async () => {
    const body = { dataset: pairs, first: 'rejected' };
    for (let index = 0; index < 8; index++) {
      const { json } = await client.post('/api/ratings', { ...body, index, vote: '2' });
      expect(json.rating.agrees).toBe(true);
      expect(json.scores).toHaveLength(2);
      expect(json.modelAgrees).toBe(json.scores[1] > json.scores[0]);
    }
    await client.post('/api/ratings', { ...body, index: 8, vote: '=' });
    await client.post('/api/ratings', { ...body, index: 9, vote: '1' });
    await client.post('/api/ratings', { ...body, index: 10, vote: 'skip' });
    expect((await client.post('/api/ratings/undo', { dataset: pairs })).json.undone.index).toBe(10);
    const again = await openStudio({ root });
    const ratings = (await again.get(`/api/ratings?${named}`)).json as RatingsAnswer;
    await again.studio.close();
    expect(ratings.next).toBe(10);
    expect(ratings.guidelines).toContain('right sum');
    expect(ratings.tally).toMatchObject({ rated: 9, ties: 1, skipped: 0 });
    expect(ratings.tally.agreement?.value).toBeCloseTo(8 / 9, 6);
    const { path, pairs: count } = (await client.post('/api/ratings/export', { dataset: pairs })).json;
    expect(count).toBe(9);
    const [before, after] = await Promise.all(
      [pairs, path].map(async (each) => (await openDataset(each, { shape: 'preference' })).toArray()),
    );
    expect(after?.[0]?.chosen).toBe(before?.[0]?.chosen);
    expect(after?.[8]?.chosen).toBe(before?.[9]?.rejected);
  });
});
