/** `attune evaluate benchmark`: accuracy of a policy on a question set, with error bars, alone or against another policy. */
import type { Command } from 'commander';
import { z } from 'zod';
import { joinWorld } from '../dist/world.ts';
import { UserError } from '../errors.ts';
import { evaluateBenchmark } from '../evaluate/benchmark/benchmark.ts';
import { describeBenchmark, writeBenchmark } from '../evaluate/benchmark/report.ts';
import { formatNames } from '../evaluate/suites/formats.ts';
import { knownSuites } from '../evaluate/suites/known.ts';
import { deviceOf, dtypeOf } from '../models/index.ts';
import { field } from '../runs/index.ts';
import { quantTypeField } from '../trainers/fields.ts';
import { registerCommand } from './options/command.ts';
import { deviceField, dtypeField, modelField, optionalCacheDtypeField } from './options/model-fields.ts';
import { checkOutputFolder, noteReplaced } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, printJson } from './terminal/print.ts';

const group = 'Questions';
const prompting = 'Prompts';
const sampling = 'Responses';
const count = () => z.number().int().positive();

export const evaluateBenchmarkSchema = z.object({
  model: modelField,
  against: field(z.string().optional(), {
    description: 'another policy, asked the same: paired tests of the difference',
    group: 'Model',
    aliases: ['opponent'],
  }),
  suite: field(z.string(), {
    description: `${knownSuites.map(({ name }) => name).join(', ')}; or a file, a folder, a name on the hub`,
    group,
    aliases: ['dataset', 'task'],
  }),
  format: field(z.enum(formatNames).optional(), { description: "the rows' format; recognised when left out", group }),
  mode: field(z.enum(['generate', 'choice']).optional(), {
    description: 'let the model write, or compare log-probs of choices; by the format when left out',
    group,
  }),
  choices: field(z.enum(['text', 'letters']).optional(), {
    description: 'compare the text of choices or their letters; by the format when left out',
    group,
  }),
  split: field(z.string().optional(), { description: 'part of the set; its test part when left out', group }),
  subset: field(z.string().optional(), { description: 'subset of a folder or hub set', group }),
  limit: field(count().optional(), { description: 'ask this many questions, drawn under the seed', group }),
  chat: field(z.boolean().optional(), { description: "prompts in the model's chat template", group: prompting }),
  raw: field(z.boolean().optional(), { description: 'prompts as plain text', group: prompting }),
  shots: field(z.number().int().min(0).optional(), {
    description: 'worked examples before each question; the usual number of the suite when left out',
    group: prompting,
    aliases: ['numFewshot'],
  }),
  shotsFrom: field(z.string().optional(), {
    description: "file or set of the examples; the set's own train part when left out",
    group: prompting,
  }),
  instruction: field(z.string().optional(), {
    description: 'added to each question in a chat; the format\'s own when left out, "" for none',
    group: prompting,
  }),
  system: field(z.string().optional(), { description: "a chat's system message", group: prompting }),
  k: field(count().optional(), {
    description: 'report pass@1 … pass@k and maj@k of sampled responses',
    group: sampling,
  }),
  samples: field(count().optional(), { description: 'responses to sample; k when left out', group: sampling }),
  maxNewTokens: field(count().optional(), {
    description: 'tokens of a response; 512, or 1024 for ifeval, when left out',
    group: sampling,
  }),
  temperature: field(z.number().positive().optional(), {
    description: 'of sampled responses; 1 when left out',
    group: sampling,
  }),
  topP: field(z.number().positive().max(1).optional(), {
    description: 'of sampled responses; 1 when left out',
    group: sampling,
  }),
  stop: field(z.array(z.string().min(1)).optional(), {
    description: 'more strings that end a response',
    group: sampling,
    variadic: true,
  }),
  seed: field(z.number().int().min(0).default(42), { description: 'of the limit, the examples and the samples' }),
  outputDir: field(z.string().default('./evaluation'), { description: 'folder for JSON, text, picture and samples' }),
  json: field(z.boolean().default(false), { description: 'print the results as JSON' }),
  dtype: dtypeField,
  device: deviceField,
  cacheDtype: optionalCacheDtypeField,
  quantType: quantTypeField('hold the blocks of the models in 8 or 4 bits', 'Model'),
});

export function registerEvaluateBenchmark(evaluate: Command): void {
  registerCommand(evaluate, {
    name: 'benchmark',
    description: 'accuracy of a policy on a question set (GSM8K, MMLU, your own), with error bars and paired tests',
    schema: evaluateBenchmarkSchema,
    examples: [
      'attune evaluate benchmark --model checkpoints/grpo/run --against models/tiny --suite questions.jsonl --k 8',
      'attune evaluate benchmark --model Qwen/Qwen3-0.6B --suite arc-challenge --shots 5 --limit 200',
    ],
    run,
  });
}

async function run(config: z.output<typeof evaluateBenchmarkSchema>): Promise<void> {
  const { chat, raw, device: named, dtype, outputDir, json, ...rest } = config;
  if (chat && raw) throw new UserError('A prompt is either --chat or --raw, not both.');
  checkOutputFolder('--output-dir', outputDir);
  using interrupt = onInterrupt();
  const device = deviceOf(named);
  const evaluation = await evaluateBenchmark({
    ...rest,
    ...(chat || raw === false ? { prompt: 'chat' as const } : raw || chat === false ? { prompt: 'raw' as const } : {}),
    device,
    dtype: dtypeOf(dtype, device),
    progress: consoleProgress(),
    signal: interrupt.signal,
  });
  if (!(await joinWorld()).isFirst) return;
  noteReplaced(outputDir, 'benchmark.json');
  await writeBenchmark(outputDir, evaluation);
  if (json) return printJson(evaluation, 2);
  print(describeBenchmark(evaluation));
  print(`\nWritten: ${shown(outputDir)}/benchmark.{json,txt,png}, samples.jsonl`);
}
