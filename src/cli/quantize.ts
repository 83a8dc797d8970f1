/** `attune quantize reward|policy`: a model in 8 or 4 bits, measured against the original and saved in bitsandbytes' layout. */
import type { Command } from 'commander';
import type { QuantType } from '../models/index.ts';
import { quantizePolicySchema, quantizeRewardSchema } from '../workflows/quantize/config.ts';
import { outputFolder, RESULTS } from '../workflows/quantize/folder.ts';
import { quantizePolicy } from '../workflows/quantize/policy.ts';
import type { QuantizeOptions } from '../workflows/quantize/results.ts';
import { quantizeReward } from '../workflows/quantize/reward.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFolder, noteReplaced } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, printJson } from './terminal/print.ts';

export function register(program: Command): void {
  const quantize = program.command('quantize').description('a model in 8 or 4 bits, measured against the original');
  registerCommand(quantize, {
    name: 'reward',
    description: 'a reward model: accuracy, loss, size and speed on the same batches',
    schema: quantizeRewardSchema,
    words: ['checkpoint'],
    examples: ['attune quantize reward --checkpoint checkpoints/rm/run/final --quant-type int4'],
    run: (config) => measure(config, config.checkpoint, (options) => quantizeReward(config, options)),
  });
  registerCommand(quantize, {
    name: 'policy',
    description: 'a policy: KL(original‖quantised) on what the original writes, size and speed',
    schema: quantizePolicySchema,
    words: ['model'],
    examples: ['attune quantize policy --model checkpoints/grpo/run/final --quant-type int4 --num-prompts 100'],
    run: (config) => measure(config, config.model, (options) => quantizePolicy(config, options)),
  });
}

interface Measured {
  results: { model_saved: boolean };
  folder: string;
  report: string;
}

async function measure(
  { outputDir, json, quantType }: { outputDir?: string; json: boolean; quantType: QuantType },
  source: string,
  run: (options: QuantizeOptions) => Promise<Measured>,
): Promise<void> {
  const target = outputFolder(source, quantType, outputDir);
  checkOutputFolder('--output-dir', outputDir ?? shown(target));
  noteReplaced(shown(target), RESULTS);
  using interrupt = onInterrupt();
  const { results, folder, report } = await run({ progress: consoleProgress(), signal: interrupt.signal });
  if (json) return printJson(results);
  print(report);
  print(`${results.model_saved ? 'model, results and picture' : 'results and picture'}: ${shown(folder)}`);
}
