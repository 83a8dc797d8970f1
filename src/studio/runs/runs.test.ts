import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lockRun } from '../../runs/index.ts';
import type { RunDetail, RunRow } from '../api.ts';
import { type Client, makeRun, openStudio, removeFolder, temporaryFolder } from '../studio.test-support.ts';
import { MetricTable } from './metric-table.ts';
import { metricSeries, thinned } from './series.ts';

const root = temporaryFolder();
let client: Client;
beforeAll(async () => {
  makeRun(root, 'a', { config: { model: 'models/tiny', algorithm: 'grpo', lr: 1 } });
  client = await openStudio({ root });
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});

const idOf = async (name: string) =>
  ((await client.get('/api/runs')).json as RunRow[]).find((run) => run.name === name)?.id as string;
/** The list is read again at most once a second. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 1100));

describe('the list and one run', () => {
  it('says what each run is', async () => {
    const [row] = (await client.get('/api/runs')).json as RunRow[];
    expect(row).toMatchObject({
      ...{ name: 'a', path: 'a', kind: 'policy', method: 'grpo', model: 'models/tiny', state: 'finished' },
      ...{ step: 2, totalSteps: 4, metric: { name: 'eval/accuracy', value: 0.5 }, seconds: 2, tags: [] },
      last: { 'train/loss': 2, 'train/reward': 0.5, 'eval/accuracy': 0.5 },
    });
  });

  it('shows options, files, console and metrics of one', async () => {
    const id = await idOf('a');
    const detail = (await client.get(`/api/runs/${id}`)).json as RunDetail;
    expect(detail.config.map(({ name, value }) => [name, value])).toContainEqual(['lr', 1]);
    expect(detail.files.map(({ name }) => name)).toContain('metrics.jsonl');
    expect(detail.metricNames[0]).toBe('eval/accuracy');
    expect((await client.get(`/api/runs/${id}/console?lines=1`)).json).toEqual({
      lines: ['second line'],
      truncated: true,
    });
    const { json } = await client.get(`/api/runs/${id}/metrics?names=train/loss&x=time`);
    expect(json.series).toEqual([{ name: 'train/loss', x: [0, 2], y: [3, 2], step: [1, 2], last: 2, min: 2, max: 3 }]);
  });

  it('compares and tags', async () => {
    makeRun(root, 'b', { config: { model: 'models/tiny', algorithm: 'grpo', lr: 2, run_name: 'b' } });
    await settled();
    const ids = [await idOf('a'), await idOf('b')];
    const { json } = await client.post('/api/compare', { ids });
    expect(json.options).toEqual([{ name: 'lr', values: [1, 2] }]);
    expect(json.metrics).toContainEqual({ name: 'train/loss', values: [2, 2] });
    expect((await client.post(`/api/runs/${ids[1]}/tag`, { tags: ['good', 'old'] })).json.tags).toEqual([
      'good',
      'old',
    ]);
    expect((await client.post(`/api/runs/${ids[1]}/tag`, { tags: ['-old'] })).json.tags).toEqual(['good']);
    const odd = await client.post(`/api/runs/${ids[1]}/tag`, { tags: ['<b>'] });
    expect([odd.status, odd.json.error.message]).toEqual([400, expect.stringMatching(/^A tag begins with a letter/)]);
    // One that was put on elsewhere can be taken off.
    expect((await client.post(`/api/runs/${ids[1]}/tag`, { tags: ['-<b>'] })).status).toBe(200);
  });

  it('deletes what was shown, after the word', async () => {
    const path = makeRun(root, 'c', { snapshots: ['step-1', 'step-2'] });
    await settled();
    const id = await idOf('c');
    const plan = (await client.post('/api/delete', { snapshots: [{ id, name: 'step-1' }] })).json;
    expect(plan.paths.map((each: { path: string }) => each.path)).toEqual(['c/step-1']);
    expect((await client.post('/api/delete', { confirm: plan.confirm, word: 'delete' })).status).toBe(400);
    expect(existsSync(join(path, 'step-1'))).toBe(true);
    expect((await client.post('/api/delete', { confirm: plan.confirm, word: 'DELETE' })).json.removed).toEqual([
      'c/step-1',
    ]);
    expect([existsSync(join(path, 'step-1')), existsSync(join(path, 'step-2'))]).toEqual([false, true]);
    expect((await client.post('/api/delete', { confirm: plan.confirm, word: 'DELETE' })).status).toBe(409);
    expect((await client.post('/api/delete', { snapshots: [{ id, name: '../a' }] })).status).toBe(400);
  });

  it('reads a run again that was seen before its run.json was there', async () => {
    const path = makeRun(root, 'begun');
    const info = readFileSync(join(path, 'run.json'));
    rmSync(join(path, 'run.json'));
    await settled();
    const id = await idOf('begun');
    writeFileSync(join(path, 'run.json'), info);
    expect((await client.get(`/api/runs/${id}`)).json).toMatchObject({ kind: 'policy', state: 'finished' });
  });

  it('does not stop what is not running, or what another process only claims', async () => {
    expect((await client.post(`/api/runs/${await idOf('a')}/stop`)).status).toBe(409);
    const path = makeRun(root, 'locked', { status: 'running' });
    using _ = lockRun(path, 'train policy');
    await settled();
    expect((await client.post(`/api/runs/${await idOf('locked')}/stop`)).status).toBe(409);
  });

  it('shows a report without scripts or an origin of ours', async () => {
    const id = await idOf('a');
    expect((await client.get(`/api/runs/${id}/report`)).status).toBe(404);
    writeFileSync(join(root, 'a', 'report.html'), '<h1>report</h1>');
    const { headers, text } = await client.get(`/api/runs/${id}/report`);
    expect(text).toBe('<h1>report</h1>');
    expect(headers['content-security-policy']).toMatch(/^sandbox; default-src 'none'/);
  });

  it('reads no file of a run that is a link to the outside', async () => {
    const secret = join(temporaryFolder(), 'secret');
    writeFileSync(secret, '{"step":1,"train/loss":7}\nsecret\n');
    const path = makeRun(root, 'linked');
    await settled();
    const id = await idOf('linked');
    for (const [file, route] of [
      ['report.html', 'report'],
      ['train.log', 'console'],
      ['metrics.jsonl', 'metrics'],
    ] as const) {
      rmSync(join(path, file), { force: true });
      symlinkSync(secret, join(path, file));
      const { status, text } = await client.get(`/api/runs/${id}/${route}`);
      expect([file, status, text.includes('secret\n')]).toEqual([file, 404, false]);
    }
    rmSync(path, { recursive: true });
    removeFolder(join(secret, '..'));
  });
});

describe('events', () => {
  const row = (step: number) => `${JSON.stringify({ step, time: 1000 * step, 'train/loss': 1 / step })}\n`;

  it('sends rows after the last that was seen, resumes, and notices a run that goes back', async () => {
    const path = join(makeRun(root, 'live', { status: 'running' }), 'metrics.jsonl');
    using _ = lockRun(join(root, 'live'), 'train policy');
    writeFileSync(path, row(1) + row(2));
    await settled();
    const id = await idOf('live');
    const first = await client.stream(`/api/runs/${id}/events?after=1`);
    await first.until((events) => events.some(({ event }) => event === 'metrics'));
    expect(first.events.find(({ event }) => event === 'state')?.data).toMatchObject({
      state: 'running',
      step: 2,
      totalSteps: 4,
    });
    expect(first.events.find(({ event }) => event === 'metrics')).toMatchObject({
      ...{ id: '2', data: { rows: [{ step: 2, time: 2000, 'train/loss': 0.5 }] } },
    });
    appendFileSync(path, row(3));
    appendFileSync(join(root, 'live', 'train.log'), 'a new line\n');
    await first.until(
      (events) => events.some(({ event }) => event === 'console') && events.some(({ id }) => id === '3'),
    );
    first.close();
    appendFileSync(path, row(4));
    const second = await client.stream(`/api/runs/${id}/events`, { headers: { 'last-event-id': '3' } });
    await second.until((events) => events.some(({ event }) => event === 'metrics'));
    expect(second.events.flatMap(({ data }) => data.rows ?? []).map(({ step }) => step)).toEqual([4]);
    truncateSync(path, row(1).length);
    await second.until((events) => events.some(({ data }) => data.rewound === true));
    appendFileSync(path, row(2));
    await second.until((events) => events.at(-1)?.data.rows?.[0]?.step === 2);
    second.close();
  });
});

describe('long metrics', () => {
  it('keeps first, last and every peak', async () => {
    const path = join(root, 'a', 'long.jsonl');
    mkdirSync(join(root, 'a'), { recursive: true });
    const values = Array.from({ length: 20_000 }, (_, i) => Math.sin(i / 50) + (i === 12_345 ? 40 : 0));
    writeFileSync(
      path,
      values.map((y, i) => `${JSON.stringify({ step: i, time: i, y, ...(i % 100 === 0 ? { z: i } : {}) })}\n`).join(''),
    );
    const table = new MetricTable(path);
    await table.refresh();
    const { series, rows, lastStep } = metricSeries(table, { names: ['y', 'z'], points: 400 });
    expect([rows, lastStep]).toEqual([20_000, 19_999]);
    const [y, z] = series;
    expect(y?.x.length).toBeLessThanOrEqual(400);
    expect([y?.x[0], y?.x.at(-1), y?.max, Math.max(...((y?.y ?? []) as number[]))]).toEqual([
      0,
      19_999,
      values[12_345],
      values[12_345],
    ]);
    expect(y?.step[y.y.indexOf(values[12_345] as number)]).toBe(12_345);
    expect(z?.x).toEqual(Array.from({ length: 200 }, (_, i) => 100 * i));
    const zoomed = metricSeries(table, { names: ['y'], points: 400, from: 12_340, to: 12_350 });
    expect(zoomed.series[0]?.y).toEqual(values.slice(12_340, 12_351));
  });

  it('reads values that are not finite', async () => {
    const path = join(root, 'a', 'nan.jsonl');
    writeFileSync(path, '{"step":1,"time":1,"y":"NaN"}\n{"step":2,"time":2,"y":3}\n{"step":3,"ti');
    const table = new MetricTable(path);
    await table.refresh();
    expect(metricSeries(table).series[0]).toMatchObject({ y: [null, 3], last: 3 });
    expect(readFileSync(path, 'utf8').length).toBeGreaterThan(0);
    expect(thinned([0, 1, 2], [1, 2, 3], 8)).toEqual([0, 1, 2]);
  });
});
