import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunDetail, RunRow } from '../api.ts';
import { type Client, makeRun, openStudio, removeFolder, temporaryFolder } from '../studio.test-support.ts';

const root = temporaryFolder();
let client: Client;
const config = { model: 'models/tiny', algorithm: 'grpo', lr: 1 };
beforeAll(async () => {
  makeRun(root, 'one', { config: { ...config, seed: 1, run_name: 'one', output_dir: 'a' } });
  makeRun(root, 'two', { config: { ...config, seed: 2, run_name: 'two', output_dir: 'b', save_steps: 5 } });
  makeRun(root, 'other', { config: { ...config, seed: 1, lr: 2 } });
  makeRun(root, 'pairs', { command: 'train preference', config: { ...config, seed: 1 } });
  client = await openStudio({
    root,
    above: {
      verbs: [],
      // A warning for every loss below 2.5, and a note for the rest.
      signals: (metrics) => {
        const { steps, values } = metrics.column('train/loss');
        return values.map((value, i) => ({
          ...{ kind: `loss-${i}`, step: steps[i] as number, before: 1, message: String(value) },
          level: value < 2.5 ? ('warning' as const) : ('note' as const),
        }));
      },
    },
  });
});
afterAll(async () => {
  await client.studio.close();
  removeFolder(root);
});

const rowOf = async (name: string) =>
  ((await client.get('/api/runs')).json as RunRow[]).find((run) => run.name === name) as RunRow;

describe('the signals of runs', () => {
  it('are told of one run with the steps they lead to', async () => {
    const { signals } = (await client.get(`/api/runs/${(await rowOf('one')).id}`)).json as RunDetail;
    expect(signals).toEqual([
      { kind: 'loss-0', level: 'note', step: 1, before: 1, message: '3', metrics: [] },
      { kind: 'loss-1', level: 'warning', step: 2, before: 1, message: '2', metrics: [] },
    ]);
  });

  it('are counted in the list, and counted anew as a run goes on', async () => {
    await expect.poll(async () => (await rowOf('one')).warnings, { timeout: 240_000 }).toBe(1);
    appendFileSync(join(root, 'one', 'metrics.jsonl'), '{"step":3,"time":4000,"train/loss":1}\n');
    await expect.poll(async () => (await rowOf('one')).warnings, { timeout: 240_000 }).toBe(2);
    expect(await rowOf('pairs')).not.toHaveProperty('warnings');
  });
});

it('runs that differ only by their seed have one setup, whatever their names and what they save', async () => {
  const [one, two, other, pairs] = await Promise.all(['one', 'two', 'other', 'pairs'].map(rowOf));
  expect([one?.setup === two?.setup, one?.setup === other?.setup, one?.setup === pairs?.setup]).toEqual([
    true,
    false,
    false,
  ]);
  expect([one?.seed, two?.seed]).toEqual([1, 2]);
});
