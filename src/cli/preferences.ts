/**
 * `attune preferences build`: pairs from a policy's own responses, ranked by a reward model, a verifier or a reward
 * module.
 */
import type { Command } from 'commander';
import { exitCodeOf } from '../exit-codes.ts';
import { counted } from '../spelling.ts';
import { type BuiltPreferences, buildPreferences } from '../workflows/preferences/build.ts';
import { buildPreferencesSchema, type RowKind } from '../workflows/preferences/config.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFile } from './options/outputs.ts';
import { short, shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

export function register(program: Command): void {
  const preferences = program.command('preferences').description('make preference data');
  registerCommand(preferences, {
    name: 'build',
    description: 'sample responses from a policy, have them judged, write pairs, graded solutions or labelled steps',
    schema: buildPreferencesSchema,
    examples: [
      'attune preferences build --model models/tiny --task chain_sum --prompts 200 --samples 8 --output pairs.jsonl',
      'attune preferences build --model ./policy --dataset prompts.jsonl --reward-model-path ./checkpoints/rm/run --pairs all',
      'attune preferences build --model Qwen/Qwen3-0.6B --dataset openai/gsm8k --subset main --kind graded --output graded.jsonl',
      'attune preferences build --model models/tiny --task chain_sum --kind steps --samples 2 --output steps.jsonl',
    ],
    async run(config) {
      checkOutputFile('--output', config.output, [config.dataset, config.rewardModule]);
      using interrupt = onInterrupt();
      const made = await buildPreferences(config, { progress: consoleProgress(), signal: interrupt.signal });
      if (made.kind === 'pairs' && made.truncated > 0)
        tell(
          `Note: ${made.truncated} responses have, with their prompts, more tokens than the reward model reads: only their ends were scored.`,
        );
      if (!made.stopped) return print(`${shown(made.output)}: ${described(made)}`);
      tell(`Stopped. What was made until then is in ${shown(made.output)}: ${described(made)}.`);
      process.exitCode = exitCodeOf(interrupt.signal);
    },
  });
}

function described(made: BuiltPreferences<RowKind>): string {
  const from = `from ${counted(made.prompts, 'prompt')}`;
  if (made.kind === 'graded')
    return `${counted(made.solutions, 'solution')} ${from}, ${made.right} right; ${counted(made.mixed, 'prompt')} with right and wrong ones`;
  if (made.kind === 'steps')
    return `${counted(made.solutions, 'solution')} ${from}, ${counted(made.steps, 'step')}, ${made.rightSteps} right; ${counted(made.mixed, 'solution')} with right and wrong steps`;
  if (made.pairs === 0) return `no pairs ${from}`;
  const scores = `mean score ${short(made.meanScore)}, chosen ${short(made.meanChosen)}, rejected ${short(made.meanRejected)}`;
  return `${counted(made.pairs, 'pair')} ${from} (${made.withoutPairs} gave none); ${scores}`;
}
