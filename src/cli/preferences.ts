/**
 * `attune preferences build`: pairs from a policy's own responses, ranked by a reward model, a verifier or a reward
 * module.
 */
import type { Command } from 'commander';
import { buildPreferences, buildPreferencesSchema } from '../workflows/build-preferences.ts';
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
    description: 'sample responses from a policy, score them, write the better and the worse ones as pairs',
    schema: buildPreferencesSchema,
    examples: [
      'attune preferences build --model models/tiny --task chain_sum --prompts 200 --samples 8 --output pairs.jsonl',
      'attune preferences build --model ./policy --dataset prompts.jsonl --reward-model-path ./checkpoints/rm/run --pairs all',
    ],
    async run(config) {
      checkOutputFile('--output', config.output, [config.dataset, config.rewardModule]);
      using interrupt = onInterrupt();
      const made = await buildPreferences(config, { progress: consoleProgress(), signal: interrupt.signal });
      const pairs = `${made.pairs} pairs from ${made.prompts} prompts (${made.withoutPairs} gave none)`;
      const scores = `mean score ${short(made.meanScore)}, chosen ${short(made.meanChosen)}, rejected ${short(made.meanRejected)}`;
      if (!made.stopped) return print(`${shown(made.output)}: ${pairs}; ${scores}`);
      tell(`Stopped. What was made until then is in ${shown(made.output)}: ${pairs}.`);
      process.exitCode = 130;
    },
  });
}
