/**
 * `attune replay`: recomputes a stored step's advantages and losses from the database and compares them with the
 * metrics.
 */
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { field, openRun } from '../runs/index.ts';
import { replayStep } from '../trainers/policy/replay.ts';
import { registerCommand } from './options/command.ts';
import { print, printJson } from './terminal/print.ts';

export const replaySchema = z.object({
  run: field(z.string(), { description: "a policy run's folder; it must have been trained with --save-tokens" }),
  step: field(z.number().int().positive().optional(), { description: 'which step; the last when left out' }),
  json: field(z.boolean().default(false), { description: 'all numbers as JSON' }),
});

export function register(program: Command): void {
  registerCommand(program, {
    name: 'replay',
    description:
      "recompute a step's advantages and losses from rollouts.db, and compare (needs a run with --save-tokens)",
    schema: replaySchema,
    words: ['run'],
    examples: ['attune replay checkpoints/grpo/run --step 12'],
    run: replay,
  });
}

function replay({ run, step: asked, json }: z.output<typeof replaySchema>): void {
  const opened = openRun(run);
  const kind = opened.info?.command ?? 'train policy';
  if (kind !== 'train policy')
    throw new UserError(`${run} is a run of attune ${kind}: only policy runs have rollouts to replay.`);
  const step = asked ?? opened.metrics().at(-1)?.step;
  if (step === undefined) throw new UserError(`${run} has taken no step yet.`);
  const replayed = replayStep(run, step);
  if (!replayed.agrees) process.exitCode = 1;
  if (json) {
    printJson(replayed, 2);
    return;
  }
  const number = (value: number) => value.toFixed(6).padStart(12);
  print(`${replayed.algorithm}, step ${step}, ${replayed.rollouts.length} rollouts\n`);
  print('   id      reward    advantage   recomputed');
  for (const { id, reward, stored, replayed: again } of replayed.rollouts.slice(0, 16))
    print(`${String(id).padStart(5)}${number(reward)} ${number(stored)} ${number(again)}`);
  if (replayed.rollouts.length > 16) print(`  … and ${replayed.rollouts.length - 16} more`);
  print('\nterm of the loss      recorded   recomputed');
  for (const { name, stored, replayed: again } of replayed.losses)
    print(`${name.padEnd(18)}${number(stored)} ${number(again)}`);
  print(
    `\nlargest difference of an advantage ${replayed.advantageGap.toExponential(1)}, sampler gap of that step ${replayed.samplerGap.toExponential(1)}: ` +
      (replayed.agrees ? 'they agree.' : 'THEY DO NOT AGREE.'),
  );
}
