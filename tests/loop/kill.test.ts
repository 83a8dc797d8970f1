/**
 * kill −9 at random moments: whatever is cut off — a step, a checkpoint half written, the rename — the resumed run ends
 * with the weights, metrics and rollouts of a run that nothing disturbed, bit for bit. ATTUNE_KILLS sets how many.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { listCheckpoints } from '../../src/runs/checkpoints.ts';
import { openRun } from '../../src/runs/open-run.ts';

const totalSteps = 60;
const killsWanted = Number(process.env.ATTUNE_KILLS ?? 8);
const folder = mkdtempSync(join(tmpdir(), 'attune-kill-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs the child; kills it `delayMs` after its first step. Returns whether it got to its end, and what it said. */
function life(output: string, delayMs?: number): Promise<{ ended: boolean; errors: string }> {
  return new Promise((resolve) => {
    const script = new URL('./train-child.ts', import.meta.url).pathname;
    const child = spawn(process.execPath, [script, output, String(totalSteps)], { stdio: ['ignore', 'pipe', 'pipe'] });
    let errors = '';
    child.stderr.on('data', (text) => {
      errors += text;
    });
    child.stdout.once('data', () => {
      if (delayMs !== undefined) setTimeout(() => child.kill('SIGKILL'), delayMs);
    });
    child.stdout.resume();
    child.on('exit', (code) => resolve({ ended: code === 0, errors }));
  });
}

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

it(`ends the same after ${killsWanted} kills`, async () => {
  const whole = join(folder, 'whole');
  expect(await life(whole)).toEqual({ ended: true, errors: '' });
  const reference = outcome(whole);
  expect(reference.losses.length).toBe(totalSteps);
  expect(reference).toMatchObject({ leftovers: [], newest: totalSteps });

  let kills = 0;
  for (let attempt = 0; kills < killsWanted; attempt++) {
    const output = join(folder, `killed-${attempt}`);
    for (let lives = 0; ; lives++) {
      const { ended, errors } = await life(output, kills < killsWanted ? Math.random() * 400 : undefined);
      expect(errors).toBe('');
      if (ended) break;
      kills++;
      expect(lives).toBeLessThan(200);
    }
    expect(outcome(output)).toEqual(reference);
  }
  expect(kills).toBeGreaterThanOrEqual(killsWanted);
}, 300_000);
