/** `attune preferences build`: pairs from a policy's own responses, ranked by a reward model, a verifier or a program. */
import type { Command } from 'commander';
import { buildPreferences, buildPreferencesSchema } from '../workflows/build-preferences.ts';
import { addSchemaOptions, schemaFlags } from './options/options.ts';
import { short, shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print } from './terminal/print.ts';

export function register(program: Command): void {
  const preferences = program.command('preferences').description('make preference data');
  const build = preferences
    .command('build')
    .description('sample responses from a policy, score them, write the better and the worse ones as pairs');
  addSchemaOptions(build, buildPreferencesSchema).addHelpText(
    'after',
    `
Examples:
  attune preferences build --model models/tiny --task chain_sum --prompts 200 --samples 8 --output pairs.jsonl
  attune preferences build --model ./policy --dataset prompts.jsonl --reward-model-path ./checkpoints/rm/run/final --pairs all`,
  );
  build.action(async () => {
    using interrupt = onInterrupt();
    const made = await buildPreferences(schemaFlags(build, buildPreferencesSchema), {
      progress: consoleProgress(),
      signal: interrupt.signal,
    });
    print(
      `${shown(made.output)}: ${made.pairs} pairs from ${made.prompts} prompts (${made.withoutPairs} gave none); ` +
        `mean score ${short(made.meanScore)}, chosen ${short(made.meanChosen)}, rejected ${short(made.meanRejected)}`,
    );
  });
}
