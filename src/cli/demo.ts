/** `attune demo`: post-training from start to end with the shipped tiny model (workflows/story.ts). */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { resolveModel } from '../hub/hub.ts';
import { dateTimeName, field } from '../runs/index.ts';
import { quoted } from '../shell.ts';
import { mixture } from '../tasks/index.ts';
import { packageRoot } from '../tensor/engine/native.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFolder } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { typedCommand } from './options/typed.ts';
import { consoleProgress, duration } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

/** Shipped with the package. */
const tinyModel = join(packageRoot, 'models', 'tiny');

export const demoSchema = z.object({
  model: field(z.string().optional(), { description: 'the model to start from; the shipped tiny one when left out' }),
  tasks: field(z.string().default('number_sorting:1,spell_backward:1,propositional_logic:1'), {
    description: 'the problems',
  }),
  minutes: field(z.number().positive().default(4.5), { description: 'time for all of it' }),
  outputDir: field(z.string().default('./attune-demo'), { description: 'folder for runs and report' }),
});

export function register(program: Command): void {
  registerCommand(program, {
    name: 'demo',
    description:
      'post-training end to end in minutes: data, a reward model, GRPO against it and against the verifier, a report',
    schema: demoSchema,
    run: demo,
  });
}

async function demo(config: z.output<typeof demoSchema>): Promise<void> {
  const { tasks, minutes, outputDir } = config;
  checkOutputFolder('--output-dir', outputDir);
  mixture(tasks);
  using interrupt = onInterrupt(() => tell('stopping'));
  const progress = consoleProgress();
  const model = await resolveModel(config.model ?? tinyModel, { progress });
  const folder = join(outputDir, dateTimeName(new Date()));
  const started = performance.now();
  const { tellStory } = await import('../workflows/story.ts');
  const next = whereNext(folder);
  const { signal } = interrupt;
  const { accuracy, proxyReward, report } = await tellStory({
    model,
    tasks,
    minutes,
    folder,
    next,
    print,
    progress,
    signal,
  });
  const row = (name: string, key: keyof typeof accuracy) =>
    `${name.padEnd(32)}${`${(100 * accuracy[key]).toFixed(0)} %`.padStart(6)}${proxyReward[key].toFixed(2).padStart(15)}`;
  print(`
policy                           right   reward model   (held-out problems)
${row('start', 'start')}
${row('GRPO against the reward model', 'rewardModel')}
${row('GRPO against the verifier', 'verifier')}

The report, with curves and answers before and after: ${shown(report)}
It took ${duration((performance.now() - started) / 1000)}. Where to go next:
${next.map(([command, what]) => `  ${command}\n      ${what}`).join('\n')}`);
}

/** Commands to try next, on files that exist. */
export function whereNext(folder: string): [string, string][] {
  const attune = typedCommand();
  const named = (path: string) => quoted(shown(path));
  const recipe = join(packageRoot, 'recipes', 'story.sh');
  return [
    [`${attune} rollouts ${named(join(folder, 'policy', 'verifier'))}`, 'what the policy wrote, step by step'],
    [
      `${attune} generate ${named(join(folder, 'policy', 'verifier'))} --chat --prompt "Sort these numbers in ascending order: 9, 2, 5"`,
      'ask it yourself',
    ],
    [
      `${attune} compare --methods ppo,grpo,dpo --model ${named(tinyModel)} --task number_sorting:1 --steps 40 --lr 2e-4`,
      'several methods from one start, one judge',
    ],
    [`${attune} train policy --help`, `every algorithm and option; ${attune} tasks lists the problems`],
    ...(existsSync(recipe)
      ? [[`sh ${named(recipe)}`, 'the same story with a real model on a GPU'] as [string, string]]
      : []),
    [`${attune} studio ${named(folder)}`, 'all of it as a web page: curves, rollouts to the token, chat'],
  ];
}
