/** `attune explore <dataset>`: statistics, openings, samples and biases of a dataset, with a plot. */
import { join } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import type { ColumnNames } from '../data/index.ts';
import { shapes } from '../data/index.ts';
import { columnRoles } from '../data/shapes/columns.ts';
import { knownKinds } from '../data/sources/files.ts';
import { explore } from '../evaluate/explore.ts';
import type { Exploration } from '../evaluate/explore-report.ts';
import type { Summary } from '../evaluate/summary.ts';
import { loadTokenizer } from '../models/files/tokenizer.ts';
import { field, kebabCase, withRules } from '../runs/index.ts';
import { registerCommand } from './options/command.ts';
import { jsonField } from './options/model-fields.ts';
import { checkOutputFolder, noteReplaced } from './options/outputs.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, printJson } from './terminal/print.ts';

const count = () => z.number().int().positive();
const reading = 'Reading';
const columnName = (role: string) => `${role}Column` as const;

const exploreOptions = z.object({
  dataset: field(z.string(), {
    description: `${knownKinds}, a folder of them, or owner/name on the hub`,
  }),
  outputDir: field(z.string().default('./explore'), {
    description: 'folder for dataset_analysis.png and analysis_results.json',
  }),
  json: jsonField,
  model: field(z.string().optional(), {
    description: "adds token statistics by this model's tokenizer (a folder, a run or a hub name)",
    group: 'Tokens',
  }),
  tokenizer: field(z.string().optional(), {
    description: 'the same, from a folder with tokenizer.json',
    group: 'Tokens',
  }),
  maxLength: field(count().default(2048), { description: 'what counts as too long, in tokens', group: 'Tokens' }),
  shape: field(z.enum(shapes).optional(), {
    description: 'how to read the rows; recognised from the columns',
    group: reading,
  }),
  split: field(z.string().optional(), { description: 'train, test, validation, or all', group: reading }),
  subset: field(z.string().optional(), { description: 'subset of a hub dataset', group: reading }),
  revision: field(z.string().optional(), {
    description: 'branch, tag or commit of a hub dataset',
    group: reading,
  }),
  maxSamples: field(count().optional(), {
    description: 'look at this many examples, drawn at random',
    group: reading,
    aliases: ['subsetSize'],
  }),
  seed: field(z.number().int().min(0).default(42), { description: 'of the draw', group: reading }),
  onBadRow: field(z.enum(['skip', 'fail']).default('skip'), {
    description: 'skip and count bad rows, or stop',
    group: reading,
  }),
  ...Object.fromEntries(
    columnRoles.map((role) => [
      columnName(role),
      field(z.string().optional(), {
        description: `the column that holds the ${kebabCase(role).replaceAll('-', ' ')}`,
        group: 'Columns',
      }),
    ]),
  ),
});

export const exploreSchema = withRules(exploreOptions, [
  {
    options: ['maxLength'],
    unread: ({ model, tokenizer }) => model === undefined && tokenizer === undefined,
    because: 'tokens are counted with --model or --tokenizer',
  },
  {
    options: ['model'],
    unread: ({ tokenizer }) => tokenizer !== undefined,
    because: 'tokens are those of --tokenizer',
  },
  {
    options: ['seed'],
    unread: ({ maxSamples }) => maxSamples === undefined,
    because: 'nothing is drawn without --max-samples',
  },
]);

type Config = z.output<typeof exploreSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'explore',
    description: 'statistics, plots and biases of a dataset: a file, a folder or a name on the hub',
    schema: exploreSchema,
    words: ['dataset'],
    examples: ['attune explore data/hh', 'attune explore trl-lib/ultrafeedback_binarized --model Qwen/Qwen3-0.6B'],
    run,
  });
}

async function run(config: Config): Promise<void> {
  const { outputDir, shape, split, subset, revision, seed, maxLength, onBadRow, maxSamples } = config;
  checkOutputFolder('--output-dir', outputDir);
  noteReplaced(outputDir, 'analysis_results.json');
  const progress = consoleProgress();
  const { model, tokenizer } = config;
  const name = model ?? tokenizer;
  const report = await explore(config.dataset, {
    outputDir,
    shape,
    split,
    subset,
    revision,
    seed,
    maxLength,
    onBadRow,
    maxSamples,
    progress,
    columns: columnsOf(config),
    tokenizer: name === undefined ? undefined : await loadTokenizer({ model: name, tokenizer }, progress),
  });
  if (config.json) return printJson(report, 2);
  print(describe(report));
  print(`\nWritten: ${join(outputDir, 'dataset_analysis.png')}, ${join(outputDir, 'analysis_results.json')}`);
}

function columnsOf(config: Record<string, unknown>): ColumnNames {
  const columns: ColumnNames = {};
  for (const role of columnRoles) {
    const name = config[columnName(role)];
    if (typeof name === 'string') columns[role] = name;
  }
  return columns;
}

const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
const number = (value: number) =>
  value.toLocaleString('en-US', { maximumFractionDigits: Math.abs(value) < 100 ? 1 : 0 });

function describe(report: Exploration): string {
  const { statistics, patterns } = report;
  const lines = [
    `${report.dataset}: ${number(report.examples)} ${report.shape} examples from ${number(report.rows)} rows`,
    ...Object.entries(report.left_out).map(([reason, count]) => `  left out: ${reason} ${number(count)}`),
    '',
    ...table('Characters', statistics.characters),
    '',
    ...table('Words', statistics.words),
  ];
  if (statistics.tokens !== undefined) {
    const { mean, p99, max, share_over_max_length: over, max_length: limit } = statistics.tokens;
    lines.push(
      '',
      `Tokens of the longer sequence: mean ${number(mean)}, p99 ${number(p99)}, max ${number(max)}; over ${number(limit)}: ${percent(over)}`,
    );
  }
  const { length_bias: bias, verbosity, conversation_depth: depth } = patterns;
  lines.push(
    '',
    `Turns: mean ${depth.mean_turns.toFixed(2)}, max ${depth.max_turns}; single-turn ${percent(depth.single_turn)}`,
  );
  if (statistics.steps_per_solution !== undefined) {
    const { mean, median, p90, max } = statistics.steps_per_solution;
    lines.push(
      `Steps per solution: mean ${number(mean)}, median ${number(median)}, p90 ${number(p90)}, max ${number(max)}`,
    );
  }
  const balance = Object.entries(patterns.label_balance ?? {});
  if (balance.length > 0) {
    const shares = balance.map(([label, { count, share }]) => `${label} ${percent(share)} (${number(count)})`);
    lines.push(`Labels${statistics.steps_per_solution === undefined ? '' : ' of steps'}: ${shares.join(', ')}`);
  }
  if (bias !== undefined && verbosity !== undefined) {
    lines.push(
      `Longer response: chosen ${percent(bias.chosen_longer)}, rejected ${percent(bias.rejected_longer)}, equal ${percent(bias.equal)}`,
      `Length difference (chosen − rejected): mean ${number(bias.mean_difference_characters)}, median ${number(bias.median_difference_characters)} characters; effect size ${bias.effect_size.toFixed(3)}`,
      `Verbosity: ${number(verbosity.chosen_mean_words)} words against ${number(verbosity.rejected_mean_words)}, ratio ${verbosity.ratio.toFixed(3)}`,
    );
  }
  if (statistics.sources !== undefined) {
    lines.push(
      '',
      'Sources:',
      ...Object.entries(statistics.sources).map(([name, count]) => `  ${name.padEnd(32)} ${number(count)}`),
    );
  }
  for (const [name, common] of Object.entries(report.openings)) {
    lines.push('', `Commonest openings (${name}):`);
    lines.push(...common.map(({ text, count }) => `  ${number(count).padStart(6)}  ${text}`));
  }
  for (const [index, sample] of report.samples.entries()) {
    lines.push('', `Sample ${index + 1}`, `  prompt: ${excerpt(sample.prompt, true)}`);
    lines.push(...Object.entries(sample.responses).map(([name, text]) => `  ${name}: ${excerpt(text)}`));
  }
  if (report.warnings.length > 0) lines.push('', ...report.warnings.map((warning) => `WARNING  ${warning}`));
  return lines.join('\n');
}

/** Columns of numbers under a title. */
export function table(title: string, parts: Record<string, Summary>): string[] {
  const columns = ['mean', 'std', 'median', 'p90', 'p99', 'max'] as const;
  const rows = Object.entries(parts).map(([name, summary]) => ({
    name: `  ${name}`,
    values: columns.map((column) => number(summary[column])),
  }));
  // As wide as the longest needs, so that no two run together.
  const wide = (least: number, texts: readonly string[]) => Math.max(least, ...texts.map(({ length }) => length + 2));
  const nameWidth = wide(14, [title, ...rows.map(({ name }) => name)]);
  const width = wide(
    9,
    rows.flatMap(({ values }) => values),
  );
  const line = (name: string, values: readonly string[]) =>
    `${name.padEnd(nameWidth)}${values.map((value) => value.padStart(width)).join('')}`;
  return [line(title, columns), ...rows.map(({ name, values }) => line(name, values))];
}

/** One line of a text; of a prompt its end, where the question is. */
function excerpt(text: string, end = false): string {
  const line = text.replace(/\s+/g, ' ').trim();
  if (line.length <= 220) return line;
  return end ? `…${line.slice(-220)}` : `${line.slice(0, 220)}…`;
}
