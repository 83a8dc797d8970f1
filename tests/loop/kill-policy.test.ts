/**
 * kill −9 at random moments of a policy run: the resumed run ends with the weights, the metrics
 * and every row of rollouts.db that an undisturbed run has, bit for bit. ATTUNE_KILLS sets how many.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, expect, it } from 'vitest';
import { openRun } from '../../src/runs/open-run.ts';
import { tinyModel } from '../support/tiny-model.ts';
import { life, livesToTheEnd } from './life.ts';

const totalSteps = 10;
const killsWanted = Number(process.env.ATTUNE_KILLS ?? 2);
const folder = mkdtempSync(join(tmpdir(), 'attune-kill-policy-'));
afterAll(() => rmSync(folder, { recursive: true }));

const tables = ['rollouts', 'eval_rollouts', 'reward_parts', 'eval_reward_parts', 'rollout_tokens'];
const timed = /time|seconds|per_second/;

function outcome(output: string) {
  const run = join(output, 'run');
  using database = new DatabaseSync(join(run, 'rollouts.db'), { readOnly: true });
  const steady = (row: object) => Object.fromEntries(Object.entries(row).filter(([name]) => !timed.test(name)));
  return {
    weights: readFileSync(join(run, 'final', 'model.safetensors')).toString('base64'),
    metrics: openRun(run).metrics().map(steady),
    rows: Object.fromEntries(tables.map((table) => [table, database.prepare(`select * from ${table}`).all()])),
    leftovers: readdirSync(run).filter((name) => name.startsWith('.') || name.startsWith('superseded')),
  };
}

it(
  `a policy run ends the same after ${killsWanted} kills`,
  async () => {
    const model = await tinyModel(join(folder, 'model'));
    const argumentsFor = (output: string) => [model, output, String(totalSteps)];
    const whole = join(folder, 'whole');
    expect(await life('./policy-child.ts', argumentsFor(whole))).toEqual({ ended: true, errors: '' });
    const reference = outcome(whole);
    expect(reference.metrics.map(({ step }) => step)).toEqual(
      Array.from({ length: totalSteps + 1 }, (_, step) => step),
    );
    expect(reference.rows.rollouts?.length).toBe(8 * totalSteps);
    expect(reference).toMatchObject({ leftovers: [] });

    for (let kills = 0, attempt = 0; kills < killsWanted; attempt++) {
      const output = join(folder, `killed-${attempt}`);
      kills += await livesToTheEnd('./policy-child.ts', argumentsFor(output), killsWanted - kills, 500);
      expect(outcome(output)).toEqual(reference);
    }
  },
  600_000 + 20_000 * killsWanted,
);
