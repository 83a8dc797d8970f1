/** `attune replay`: a stored step's advantages and losses, recomputed from the database and held against the record. */
import type { Command } from 'commander';
import { UserError } from '../errors.ts';
import { openRun } from '../runs/index.ts';
import { replayStep } from '../trainers/policy/replay.ts';
import { wholeNumber } from './options/numbers.ts';
import { print, printJson } from './terminal/print.ts';

export function register(program: Command): void {
  program
    .command('replay <run>')
    .description(
      "recompute a step's advantages and losses from rollouts.db, and compare (needs a run with --save-tokens)",
    )
    .option('--step <n>', 'which step; the last when left out')
    .option('--json', 'all numbers as JSON')
    .addHelpText('after', '\nExample:\n  attune replay checkpoints/grpo/run --step 12')
    .action((run: string, options: { step?: string; json?: boolean }) => {
      const asked = options.step === undefined ? undefined : wholeNumber('--step', options.step, 1);
      const step = asked ?? openRun(run).metrics().at(-1)?.step;
      if (step === undefined) throw new UserError(`${run} has taken no step yet.`);
      const replay = replayStep(run, step);
      if (!replay.agrees) process.exitCode = 1;
      if (options.json) {
        printJson(replay, 2);
        return;
      }
      const number = (value: number) => value.toFixed(6).padStart(12);
      print(`${replay.algorithm}, step ${step}, ${replay.rollouts.length} rollouts\n`);
      print('   id      reward    advantage   recomputed');
      for (const { id, reward, stored, replayed } of replay.rollouts.slice(0, 16))
        print(`${String(id).padStart(5)}${number(reward)} ${number(stored)} ${number(replayed)}`);
      if (replay.rollouts.length > 16) print(`  … and ${replay.rollouts.length - 16} more`);
      print('\nterm of the loss      recorded   recomputed');
      for (const { name, stored, replayed } of replay.losses)
        print(`${name.padEnd(18)}${number(stored)} ${number(replayed)}`);
      print(
        `\nlargest difference of an advantage ${replay.advantageGap.toExponential(1)}, sampler gap of that step ${replay.samplerGap.toExponential(1)}: ` +
          (replay.agrees ? 'they agree.' : 'THEY DO NOT AGREE.'),
      );
    });
}
