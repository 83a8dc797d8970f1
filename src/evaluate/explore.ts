/**
 * Describes a dataset before training: lengths, turns, openings, and biases that a reward model would learn from it.
 *
 *     const report = await explore('./data/hh', { outputDir: './explore' });
 *     report.patterns.length_bias?.chosen_longer     // 0.53
 */
import { join } from 'node:path';
import { datasetOptionNames } from '../data/dataset.ts';
import { type DatasetOptions, type DatasetSpec, ExampleEncoder, openDataset } from '../data/index.ts';
import { checkNames, UserError } from '../errors.ts';
import { makeFolder } from '../folder.ts';
import { datasetHub } from '../hub/hub.ts';
import type { Progress } from '../progress.ts';
import { Random } from '../random.ts';
import { writeWhole } from '../runs/json-files.ts';
import { counted, spelled } from '../spelling.ts';
import type { TextTokenizer } from '../text/chat-format.ts';
import { type Aspect, aspectOf, type Text } from './explore-aspects.ts';
import { Collected, push } from './explore-figures.ts';
import { drawExploration } from './explore-plot.ts';
import type { ConversationDepth, Exploration, LengthBias } from './explore-report.ts';
import { share, summarise } from './summary.ts';

export interface ExploreOptions extends DatasetOptions {
  /** Adds token statistics. */
  tokenizer?: TextTokenizer;
  /** Examples longer than this many tokens count as too long. */
  maxLength?: number;
  /** The folder for dataset_analysis.png and analysis_results.json. */
  outputDir?: string;
  progress?: Progress;
}

const ownOptions = ['tokenizer', 'maxLength', 'outputDir', 'progress'];
/** Above this share of longer chosen responses, a reward model can do well by length alone. */
const biasLimit = 0.55;
/** Above this share of one label, the others are hardly learnt. */
const labelLimit = 0.9;
const sampleCount = 3;
const openingCount = 10;
const encodeChunk = 512;

/** Statistics and biases of a dataset; with `outputDir`, also writes a plot and a JSON file. */
export async function explore(spec: DatasetSpec, options: ExploreOptions = {}): Promise<Exploration> {
  checkNames('explore', options, [...datasetOptionNames, ...ownOptions]);
  const { tokenizer, maxLength = 2048, outputDir, progress, ...source } = options;
  const dataset = await openDataset(spec, { onBadRow: 'skip', hub: datasetHub({ progress }), ...source });
  const shape = await dataset.shape();
  const { collected, tokens } = await collect(dataset, shape, tokenizer, progress);
  const { tally } = dataset;
  const report: Exploration = {
    dataset: dataset.name,
    shape,
    rows: tally.rows,
    examples: tally.examples,
    bad_rows: tally.badRows,
    left_out: { ...tally.dropped },
    statistics: {
      characters: mapParts(collected, (parts) => summarise(parts.map((part) => part.characters))),
      words: mapParts(collected, (parts) => summarise(parts.map((part) => part.words))),
      turns: summarise(collected.turns),
    },
    patterns: { conversation_depth: conversationDepth(collected) },
    openings: openings(collected),
    samples: collected.samples,
    warnings: [],
  };
  if (collected.sources.size > 0) report.statistics.sources = Object.fromEntries(collected.sources);
  if (tokens !== undefined) {
    const over = share(tokens, (length) => length > maxLength);
    report.statistics.tokens = { ...summarise(tokens), max_length: maxLength, share_over_max_length: over };
  }
  if (shape === 'preference') {
    const differences = collected.differences();
    report.statistics.length_difference = summarise(differences);
    report.patterns.length_bias = lengthBias(differences);
    const [chosen = 0, rejected = 0] = [report.statistics.words.chosen?.mean, report.statistics.words.rejected?.mean];
    report.patterns.verbosity = {
      chosen_mean_words: chosen,
      rejected_mean_words: rejected,
      ratio: chosen / Math.max(rejected, 1e-9),
    };
  }
  if (collected.steps.length > 0) report.statistics.steps_per_solution = summarise(collected.steps);
  if (collected.labels.size > 0) report.patterns.label_balance = collected.labelBalance();
  report.warnings = warningsOf(report, dataset.leftAside);
  if (outputDir !== undefined) {
    makeFolder(outputDir);
    writeWhole(join(outputDir, 'analysis_results.json'), `${JSON.stringify(report, null, 2)}\n`);
    writeWhole(join(outputDir, 'dataset_analysis.png'), await drawExploration(report, collected));
  }
  return report;
}

async function collect(
  dataset: Awaited<ReturnType<typeof openDataset>>,
  shape: Awaited<ReturnType<typeof dataset.shape>>,
  tokenizer: TextTokenizer | undefined,
  progress: Progress | undefined,
): Promise<{ collected: Collected; tokens: number[] | undefined }> {
  const collected = new Collected();
  const random = new Random(42);
  const encoder = tokenizer === undefined ? undefined : new ExampleEncoder(tokenizer, shape);
  const tokens: number[] = [];
  const task = progress?.start(`reading ${dataset.name}`, undefined, 'examples');
  let chunk: Parameters<NonNullable<typeof encoder>['encode']>[0][number][] = [];
  const encodeChunkNow = async () => {
    for (const result of (await encoder?.encode(chunk)) ?? []) {
      if ('records' in result)
        for (const { sequences } of result.records) tokens.push(Math.max(...sequences.map(({ ids }) => ids.length)));
    }
    chunk = [];
  };
  let seen = 0;
  for await (const example of dataset) {
    const aspect = aspectOf(shape, example);
    collected.add(aspect, example.source);
    const slot = seen < sampleCount ? seen : random.int(0, seen);
    if (slot < sampleCount) collected.samples[slot] = sampleOf(aspect);
    seen++;
    task?.advance(1);
    if (encoder !== undefined && chunk.push(example) === encodeChunk) await encodeChunkNow();
  }
  if (chunk.length > 0) await encodeChunkNow();
  task?.done();
  if (seen === 0) throw new UserError(`${dataset.name}: the dataset is empty.`);
  return { collected, tokens: encoder === undefined ? undefined : tokens };
}

function sampleOf({ parts }: Aspect): Exploration['samples'][number] {
  const { prompt = '', ...responses } = parts;
  return { prompt, responses };
}

function mapParts<T>(collected: Collected, fn: (parts: Text[]) => T): Record<string, T> {
  return Object.fromEntries([...collected.parts].map(([name, parts]) => [name, fn(parts)]));
}

function lengthBias(differences: number[]): LengthBias {
  const { mean, median, std } = summarise(differences);
  const longer = share(differences, (difference) => difference > 0);
  return {
    chosen_longer: longer,
    rejected_longer: share(differences, (difference) => difference < 0),
    equal: share(differences, (difference) => difference === 0),
    mean_difference_characters: mean,
    median_difference_characters: median,
    effect_size: std > 0 ? mean / std : 0,
    biased: longer > biasLimit,
  };
}

function conversationDepth(collected: Collected): ConversationDepth {
  const { turns } = collected;
  const differences = collected.differences();
  const groups = new Map<number, number[]>();
  turns.forEach((count, index) => {
    push(groups, count, index);
  });
  const byTurns = [...groups]
    .sort(([a], [b]) => a - b)
    .map(([count, indices]) => {
      const figures: { examples: number; chosen_longer?: number } = { examples: indices.length };
      if (differences.length > 0) figures.chosen_longer = share(indices, (index) => (differences[index] as number) > 0);
      return [String(count), figures] as const;
    });
  const { mean, max } = summarise(turns);
  return {
    mean_turns: mean,
    max_turns: max,
    single_turn: share(turns, (count) => count === 1),
    by_turns: Object.fromEntries(byTurns),
  };
}

function openings(collected: Collected): Exploration['openings'] {
  return Object.fromEntries(
    [...collected.openings].map(([name, counts]) => {
      const common = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, openingCount);
      return [name, common.map(([text, count]) => ({ text, count }))];
    }),
  );
}

function warningsOf(report: Exploration, leftAside: readonly string[]): string[] {
  const warnings: string[] = [];
  if (leftAside.length > 0) {
    const shown = leftAside.slice(0, 8).join(', ');
    const more = leftAside.length > 8 ? ` and ${leftAside.length - 8} more` : '';
    const advice = spelled('Choose with --split and --subset; --split all reads everything.');
    warnings.push(`Not read: ${shown}${more}. ${advice}`);
  }
  const { length_bias: bias } = report.patterns;
  const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
  if (bias?.biased) {
    warnings.push(
      `Length bias: the chosen response is the longer one in ${percent(bias.chosen_longer)} of the pairs. ` +
        'A reward model can learn length in place of quality; look at its accuracy on pairs whose chosen response is shorter.',
    );
  }
  const labels = Object.entries(report.patterns.label_balance ?? {});
  const [commonest] = labels;
  if (commonest !== undefined && commonest[1].share > labelLimit) {
    warnings.push(
      `Labels: ${percent(commonest[1].share)} are "${commonest[0]}". A model can do well by saying so each time; weigh the classes, or look at each one's accuracy.`,
    );
  }
  const { tokens } = report.statistics;
  if (tokens !== undefined && tokens.share_over_max_length > 0.05) {
    warnings.push(
      `${percent(tokens.share_over_max_length)} of the examples are longer than ${tokens.max_length} tokens and would be left out.`,
    );
  }
  if (report.bad_rows > 0)
    warnings.push(
      `${counted(report.bad_rows, 'row')} could not be read and ${report.bad_rows === 1 ? 'was' : 'were'} skipped.`,
    );
  return warnings;
}
