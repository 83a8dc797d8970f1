/** `attune explore <dataset>`: statistics, openings, samples and biases of a dataset, with a picture. */
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import type { ColumnNames, Shape } from '../data/index.ts';
import { columnRoles, shapes } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { explore } from '../evaluate/explore.ts';
import type { Exploration } from '../evaluate/explore-figures.ts';
import type { Summary } from '../evaluate/summary.ts';
import { resolveModel } from '../hub/hub.ts';
import { Tokenizer } from '../text/tokenizer/tokenizer.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, printJson } from './terminal/print.ts';

interface Flags {
  outputDir: string;
  shape?: Shape;
  split?: string;
  subset?: string;
  revision?: string;
  maxSamples?: number;
  seed: number;
  model?: string;
  tokenizer?: string;
  maxLength: number;
  onBadRow: 'skip' | 'fail';
  json?: boolean;
  [column: `${string}Column`]: string | undefined;
}

export function register(program: Command): void {
  const command = program
    .command('explore')
    .description('statistics, plots and biases of a dataset: a file, a folder or a name on the hub')
    .argument('<dataset>', 'jsonl, json, csv or parquet (also .gz), a folder of them, or owner/name on the hub')
    .option('--output-dir <folder>', 'where dataset_analysis.png and analysis_results.json go', './explore')
    .option('--model <model>', "adds token statistics by this model's tokenizer (a folder or a hub name)")
    .option('--tokenizer <folder>', 'the same, from a folder with tokenizer.json')
    .option('--max-length <tokens>', 'what counts as too long', wholeNumber, 2048)
    .addOption(new Option('--shape <shape>', 'how to read the rows; recognised from the columns').choices([...shapes]))
    .option('--split <split>', 'train, test, validation, or all')
    .option('--subset <name>', 'a subset of a hub dataset')
    .option('--revision <revision>', 'branch, tag or commit of a hub dataset')
    .addOption(new Option('--max-samples <n>', 'look at this many examples, drawn at random').argParser(wholeNumber))
    .option('--subset-size <n>', 'the same as --max-samples', wholeNumber)
    .option('--seed <n>', 'for the samples', Number, 42)
    .addOption(
      new Option('--on-bad-row <what>', 'skip and count broken rows, or stop')
        .choices(['skip', 'fail'])
        .default('skip'),
    )
    .option('--json', 'print the analysis as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  attune explore data/hh\n  attune explore trl-lib/ultrafeedback_binarized --model Qwen/Qwen3-0.6B',
    );
  for (const role of columnRoles) {
    const flag = role.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    command.addOption(
      new Option(`--${flag}-column <name>`, `the column that holds the ${flag.replace('-', ' ')}`).helpGroup(
        'Columns:',
      ),
    );
  }
  command.action(async (dataset: string, flags: Flags & { subsetSize?: number }) => {
    const { outputDir, shape, split, subset, revision, seed, maxLength, onBadRow } = flags;
    const progress = consoleProgress();
    const report = await explore(dataset, {
      outputDir,
      shape,
      split,
      subset,
      revision,
      seed,
      maxLength,
      onBadRow,
      progress,
      maxSamples: flags.maxSamples ?? flags.subsetSize,
      columns: columnsOf(flags),
      tokenizer: await tokenizerOf(flags, progress),
    });
    if (flags.json) printJson(report, 2);
    else {
      print(describe(report));
      print(`\nWritten: ${join(outputDir, 'dataset_analysis.png')}, ${join(outputDir, 'analysis_results.json')}`);
    }
  });
}

async function tokenizerOf(flags: Flags, progress: ReturnType<typeof consoleProgress>): Promise<Tokenizer | undefined> {
  if (flags.tokenizer !== undefined) return Tokenizer.load(flags.tokenizer);
  if (flags.model === undefined) return undefined;
  return Tokenizer.load(await resolveModel(flags.model, { tokenizerOnly: true, progress }));
}

function columnsOf(flags: Flags): ColumnNames {
  const columns: ColumnNames = {};
  for (const role of columnRoles) if (flags[`${role}Column`] !== undefined) columns[role] = flags[`${role}Column`];
  return columns;
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new UserError(`"${text}" is not a whole number of at least 1.`);
  return value;
}

const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
const number = (value: number) => value.toLocaleString('en-US', { maximumFractionDigits: value < 100 ? 1 : 0 });

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

function table(title: string, parts: Record<string, Summary>): string[] {
  const columns = ['mean', 'std', 'median', 'p90', 'p99', 'max'] as const;
  const cells = (values: string[]) => values.map((value) => value.padStart(9)).join('');
  return [
    `${title.padEnd(14)}${cells([...columns])}`,
    ...Object.entries(parts).map(
      ([name, summary]) => `  ${name.padEnd(12)}${cells(columns.map((column) => number(summary[column])))}`,
    ),
  ];
}

/** One line of a text: of a prompt its end, which is what is answered. */
function excerpt(text: string, end = false): string {
  const line = text.replace(/\s+/g, ' ').trim();
  if (line.length <= 220) return line;
  return end ? `…${line.slice(-220)}` : `${line.slice(0, 220)}…`;
}
