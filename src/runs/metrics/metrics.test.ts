import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { JsonlMetrics, type MetricRow, Metrics, readMetrics, trainingHistory } from './metrics.ts';
import { openWandb } from './wandb.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-metrics-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('metrics.jsonl', () => {
  it('round-trips rows, non-finite numbers included', async () => {
    const path = join(folder, 'a.jsonl');
    const metrics = new Metrics([new JsonlMetrics(path)]);
    metrics.row(1, { 'train/loss': Number.NaN, 'train/lr': 1e-5 });
    metrics.row(2, { 'train/loss': Number.NEGATIVE_INFINITY });
    await metrics.close();
    expect(readMetrics(path)).toMatchObject([
      { step: 1, 'train/loss': Number.NaN, 'train/lr': 1e-5 },
      { step: 2, 'train/loss': Number.NEGATIVE_INFINITY },
    ]);
    expect(() =>
      readFileSync(path, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).not.toThrow();
  });

  it('cuts rows past the resumed step and a torn line', () => {
    const path = join(folder, 'b.jsonl');
    const first = new JsonlMetrics(path);
    for (const step of [1, 2, 3, 4]) first.scalars(step, { x: step }, 0);
    first.close();
    appendFileSync(path, '{"step":5,"ti');
    expect(readMetrics(path).map((row) => row.step)).toEqual([1, 2, 3, 4]);
    const resumed = new JsonlMetrics(path, { resumedAt: 2 });
    resumed.scalars(3, { x: 30 }, 0);
    resumed.close();
    expect(readMetrics(path).map((row) => row.x)).toEqual([1, 2, 30]);
  });

  it('becomes a history of one list per metric', () => {
    const rows: MetricRow[] = [
      { step: 1, time: 0, a: 1 },
      { step: 2, time: 0, a: 2, b: 5, constructor: 3 as never },
    ];
    expect(trainingHistory(rows)).toEqual({
      a: { step: [1, 2], value: [1, 2] },
      b: { step: [2], value: [5] },
      constructor: { step: [2], value: [3] },
    });
  });
});

describe('W&B', () => {
  const options = { project: 'p', name: 'n', config: { lr: 1 } };
  it('says what is missing', async () => {
    const load = () => Promise.reject(Object.assign(new Error('no'), { code: 'ERR_MODULE_NOT_FOUND' }));
    await expect(openWandb({ ...options, load, environment: { WANDB_API_KEY: 'k' } })).rejects.toThrow(
      /npm install @wandb\/sdk/,
    );
    const present = () => Promise.resolve({ init: async () => {}, log: () => {}, finish: async () => {} });
    await expect(openWandb({ ...options, load: present, environment: {} })).rejects.toThrow(/WANDB_API_KEY is not set/);
    expect(await openWandb({ ...options, load, environment: { WANDB_MODE: 'offline' } })).toBeUndefined();
    expect(await openWandb({ ...options, load, environment: { WANDB_MODE: 'disabled' } })).toBeUndefined();
  });

  it('sends finite numbers in order, survives a failing connection, and leaves Ctrl-C to us', async () => {
    const calls: unknown[] = [];
    const wandb = {
      init: async (given: unknown) => {
        process.once('SIGINT', () => process.exit());
        calls.push(given);
      },
      log: async (values: Record<string, number>, step: number) => {
        calls.push([step, values]);
        if (step === 1) throw new Error('offline');
      },
      finish: async () => void calls.push('finish'),
    };
    const listeners = process.listenerCount('SIGINT');
    const sink = await openWandb({
      ...options,
      load: async () => ({ default: wandb }),
      environment: { WANDB_API_KEY: 'k' },
    });
    sink?.scalars(1, { loss: 1, bad: Number.NaN }, 0);
    sink?.scalars(2, { loss: 2 }, 0);
    await sink?.close();
    expect(calls).toEqual([{ ...options, settings: { silent: true } }, [1, { loss: 1 }], [2, { loss: 2 }], 'finish']);
    expect(process.listenerCount('SIGINT')).toBe(listeners);
  });
});
