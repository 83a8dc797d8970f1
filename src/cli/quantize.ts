/** `attune quantize reward|policy`: a model in 8 or 4 bits, measured against the original and saved in bitsandbytes' layout. */
import type { Command } from 'commander';
import type { ConfigSchema } from '../runs/index.ts';
import { quantizePolicySchema, quantizeRewardSchema } from '../workflows/quantize/config.ts';
import { quantizePolicy } from '../workflows/quantize/policy.ts';
import type { QuantizeOptions } from '../workflows/quantize/results.ts';
import { quantizeReward } from '../workflows/quantize/reward.ts';
import { addSchemaOptions, schemaFlags, withArgument } from './options/options.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, printJson } from './terminal/print.ts';

interface Verb {
  name: string;
  description: string;
  schema: ConfigSchema;
  example: string;
  run: (
    flags: never,
    options: QuantizeOptions,
  ) => Promise<{ results: { model_saved: boolean }; folder: string; report: string }>;
}

const verbs: Verb[] = [
  {
    name: 'reward',
    description: 'a reward model: accuracy, loss, size and speed on the same batches',
    schema: quantizeRewardSchema,
    example: 'attune quantize reward --checkpoint checkpoints/rm/run/final --quant-type int4',
    run: quantizeReward,
  },
  {
    name: 'policy',
    description: 'a policy: KL(original‖quantised) on what the original writes, size and speed',
    schema: quantizePolicySchema,
    example: 'attune quantize policy --model checkpoints/grpo/run/final --quant-type int4 --num-prompts 100',
    run: quantizePolicy,
  },
];

export function register(program: Command): void {
  const quantize = program.command('quantize').description('a model in 8 or 4 bits, measured against the original');
  for (const verb of verbs) {
    const command = addSchemaOptions(quantize.command(verb.name).description(verb.description), verb.schema);
    const named = verb.name === 'reward' ? 'checkpoint' : 'model';
    command.argument(`[${named}]`, `the same as --${named}`);
    command.addHelpText('after', `\nExample:\n  ${verb.example}`);
    command.action(async (model?: string) => {
      using interrupt = onInterrupt();
      const flags = withArgument(schemaFlags(command, verb.schema), named, model);
      const options = { progress: consoleProgress(), signal: interrupt.signal };
      const { results, folder, report } = await verb.run(flags as never, options);
      if (flags.json) printJson(results);
      else {
        print(report);
        print(`${results.model_saved ? 'model, results and picture' : 'results and picture'}: ${shown(folder)}`);
      }
    });
  }
}
