/** `attune compare`: trains one model by several methods and compares them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { joinWorld } from '../dist/world.ts';
import { exitCodeOf } from '../exit-codes.ts';
import { compareMethods } from '../workflows/compare/compare.ts';
import { type CompareInput, compareSchema } from '../workflows/compare/config.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFolder } from './options/outputs.ts';
import { consoleProgress, duration, ifUnsaid } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

export function register(program: Command): void {
  registerCommand(program, {
    name: 'compare',
    description: 'several methods from one start, the same prompts, budget and judge; one report',
    schema: compareSchema,
    examples: [
      'attune compare --model models/tiny --methods ppo,grpo,dpo --task number_sorting:1 --steps 40 --lr 2e-4 --group-size 4 --seeds 1,2,3',
    ],
    async run(config) {
      checkOutputFolder('--output-dir', config.outputDir);
      using interrupt = onInterrupt(ifUnsaid(() => tell('stopping after this step; what is done is kept')));
      const { isFirst } = await joinWorld();
      const { signal } = interrupt;
      try {
        const { folder } = await compareMethods(config as CompareInput, {
          progress: consoleProgress(),
          signal,
          onRun: ({ method, seed, judgements, seconds }) => {
            if (!isFirst) return;
            const { reward, accuracy } = judgements.at(-1)?.metrics ?? {};
            const right = accuracy === undefined ? '' : `, accuracy ${accuracy.toFixed(3)}`;
            tell(`${method} (seed ${seed}): reward ${reward?.toFixed(3)}${right} after ${duration(seconds)}`);
          },
        });
        if (isFirst) {
          print(readFileSync(join(folder, 'comparison', 'comparison_report.txt'), 'utf8'));
          print(`picture, report and figures: ${join(folder, 'comparison')}`);
          if (signal.aborted) tell('Stopped: the report has the runs that had ended.');
        }
      } catch (error) {
        if (!signal.aborted || (error as Error).name !== 'AbortError') throw error;
        if (isFirst) tell((error as Error).message);
      }
      if (signal.aborted) process.exitCode = exitCodeOf(signal);
    },
  });
}
