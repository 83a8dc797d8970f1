/**
 * kill −9 at random moments: whatever is cut off — a step, a checkpoint half written, the rename — the resumed run ends
 * with the weights, metrics and rollouts of a run that nothing disturbed, bit for bit. ATTUNE_KILLS sets how many.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { listCheckpoints } from '../../src/runs/checkpoints.ts';
import { openRun } from '../../src/runs/open-run.ts';
import { life, livesToTheEnd } from './life.ts';

const totalSteps = 60;
const killsWanted = Number(process.env.ATTUNE_KILLS ?? 5);
const folder = mkdtempSync(join(tmpdir(), 'attune-kill-'));
afterAll(() => rmSync(folder, { recursive: true }));

function outcome(output: string) {
  const run = openRun(join(output, 'run'));
  using rollouts = run.rollouts();
  return {
    weights: readFileSync(join(output, 'run', 'final', 'model.safetensors')).toString('base64'),
    best: readFileSync(join(output, 'run', 'best_model', 'model.safetensors')).toString('base64'),
    losses: run.metrics().map((row) => [row.step, row['train/loss'], row['eval/loss']]),
    rollouts: rollouts.query().map((row) => [row.step, row.completion]),
    leftovers: readdirSync(join(output, 'run')).filter((name) => name.startsWith('.') || name.startsWith('superseded')),
    newest: listCheckpoints(join(output, 'run')).at(-1)?.step,
  };
}

it(
  `ends the same after ${killsWanted} kills`,
  async () => {
    const whole = join(folder, 'whole');
    expect(await life('./train-child.ts', [whole, String(totalSteps)])).toEqual({ ended: true, errors: '' });
    const reference = outcome(whole);
    expect(reference.losses.length).toBe(totalSteps);
    expect(reference).toMatchObject({ leftovers: [], newest: totalSteps });

    let kills = 0;
    for (let attempt = 0; kills < killsWanted; attempt++) {
      const output = join(folder, `killed-${attempt}`);
      kills += await livesToTheEnd('./train-child.ts', [output, String(totalSteps)], killsWanted - kills, 400);
      expect(outcome(output)).toEqual(reference);
    }
    expect(kills).toBeGreaterThanOrEqual(killsWanted);
  },
  600_000 + 20_000 * killsWanted,
);
