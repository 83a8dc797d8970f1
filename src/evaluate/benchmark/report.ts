/**
 * Writes a benchmark's results: `benchmark.json`, `benchmark.txt`, `benchmark.png`, and every question with its answers
 * as JSON lines.
 */
import { rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { bars, type Chart, grid, inPercent, toPng, writeWhole } from '../../runs/index.ts';
import type { Figure, PairedTest } from '../statistics.ts';
import type { BenchmarkEvaluation } from './benchmark.ts';
import type { BenchmarkResults } from './results.ts';

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const between = ([low, high]: readonly [number, number]) => `${percent(low)} to ${percent(high)}`;
const told = ({ value, interval }: Figure) => `${percent(value).padStart(7)} (95 %: ${between(interval)})`;

/** The names of the samples files, of the model and of the one it is compared with. */
export const sampleFiles = ['samples.jsonl', 'samples_against.jsonl'] as const;

/** Writes the results of `evaluateBenchmark` to a folder. */
export async function writeBenchmark(folder: string, evaluation: BenchmarkEvaluation): Promise<void> {
  makeFolder(folder);
  writeWhole(join(folder, 'benchmark.json'), `${JSON.stringify(evaluation, null, 2)}\n`);
  writeWhole(join(folder, 'benchmark.txt'), `${describeBenchmark(evaluation)}\n`);
  writeWhole(join(folder, 'benchmark.png'), await drawBenchmark(evaluation));
  for (const [i, name] of sampleFiles.entries()) {
    const lines = evaluation.outcomes[i]?.map(({ sample, scores }) => `${JSON.stringify({ ...sample, scores })}\n`);
    if (lines !== undefined) writeWhole(join(folder, name), lines.join(''));
    // Removes the second model's file left by an earlier evaluation into this folder.
    else rmSync(join(folder, name), { force: true });
  }
}

/** The meaning of each metric, for the report. */
const meanings: Record<string, string> = {
  strict: "greedy, the answer behind the format's marker",
  lenient: 'greedy, the answer wherever it stands',
  acc: 'the likeliest choice',
  acc_norm: 'log-prob per character',
  acc_bytes: 'log-prob per byte',
  prompt_strict: 'all instructions of a prompt followed',
  instruction_strict: 'instructions followed',
  prompt_loose: 'all, with opening and closing lines and asterisks forgiven',
  instruction_loose: 'instructions, with the same forgiven',
};

/** The results as text. */
export function describeBenchmark(results: BenchmarkResults): string {
  const { shots, shots_from: from, sampling, cache_dtype: cache, comparison } = results;
  const lines = [
    `${results.suite} (${results.format}, by ${results.mode === 'choice' ? 'log-prob of choices' : 'written answers'}): ${results.questions} questions`,
    `  ${results.prompt} prompts, ${shots === 0 ? 'no examples' : `${shots} examples from ${from}`}, seed ${results.seed}`,
    ...(sampling
      ? [`  ${sampling.samples} samples a question, temperature ${sampling.temperature}, top-p ${sampling.top_p}`]
      : []),
    ...(cache === undefined ? [] : [`  keys and values held in ${cache}`]),
    ...Object.entries(results.left_out).map(([reason, count]) => `  left out: ${reason} ${count}`),
  ];
  for (const figures of results.models) {
    lines.push('', figures.model);
    for (const [name, figure] of Object.entries(figures.metrics))
      lines.push(`  ${name.padEnd(20)} ${told(figure)}${meanings[name] === undefined ? '' : `  ${meanings[name]}`}`);
    if (figures.too_long > 0) lines.push(`  questions too long for the model, counted as wrong: ${figures.too_long}`);
    if (figures.shortened_prompts > 0)
      lines.push(`  prompts with fewer examples, for lack of room: ${figures.shortened_prompts}`);
    if (figures.cut_off) lines.push(`  greedy responses cut at the limit of new tokens: ${figures.cut_off}`);
    lines.push(...subjectLines(figures.by_subject));
  }
  if (comparison !== undefined) {
    const [first, second] = results.models;
    lines.push('', `${first?.model} less ${second?.model}, question by question`);
    for (const [name, test] of Object.entries(comparison)) lines.push(`  ${name.padEnd(20)} ${toldTest(test)}`);
  }
  return lines.join('\n');
}

/** The first metric of each subject. */
function subjectLines(subjects: BenchmarkResults['models'][number]['by_subject']): string[] {
  const entries = Object.entries(subjects);
  if (entries.length < 2) return [];
  const [main = ''] = Object.keys(entries[0]?.[1] ?? {});
  return [
    `  ${main} by subject`,
    ...entries.map(
      ([subject, figures]) =>
        `    ${subject.padEnd(36)} ${told(figures[main] as Figure)} of ${figures[main]?.questions}`,
    ),
  ];
}

function toldTest({ difference, interval, bootstrap_p: p, mcnemar }: PairedTest): string {
  const points = (share: number) => `${share >= 0 ? '+' : '−'}${Math.abs(100 * share).toFixed(1)}`;
  const range = `${points(difference)} points (95 %: ${points(interval[0])} to ${points(interval[1])})`;
  if (mcnemar === undefined) return `${range}, paired bootstrap p ${short(p)}`;
  return `${range}, McNemar p ${short(mcnemar.p)} (right alone: ${mcnemar.only_first} and ${mcnemar.only_second})`;
}

const short = (p: number) => (p < 0.001 ? p.toExponential(1) : p.toFixed(3));

/** A benchmark's results as a picture: accuracies, pass@k and maj@k by k, and the first metric by subject. */
export async function drawBenchmark(results: BenchmarkResults): Promise<Uint8Array> {
  const { models } = results;
  const names = namesOf(results);
  const [main = ''] = Object.keys(models[0]?.metrics ?? {});
  const common = { width: 330, height: 220, format: inPercent(0), share: true, yLabel: 'share of questions' } as const;
  const bar = (label: string, { value, interval }: Figure, group?: string) => ({
    label,
    value,
    interval,
    ...(group !== undefined && { group }),
  });
  const nameOf = (i: number) => (models.length > 1 ? names[i] : undefined);
  const plain = models.flatMap(({ metrics }, i) =>
    Object.entries(metrics).flatMap(([name, figure]) => (name.includes('@') ? [] : [bar(name, figure, nameOf(i))])),
  );
  const charts: Chart[] = [bars({ ...common, title: 'Accuracy (95 % intervals)', bars: plain })];
  for (const kind of ['pass', 'maj']) {
    const sampled = models.flatMap(({ metrics }, i) =>
      Object.entries(metrics).flatMap(([name, figure]) => {
        const [, way = '', k = ''] = new RegExp(`^(.*)_${kind}@(\\d+)$`).exec(name) ?? [];
        return k === '' ? [] : [bar(k, figure, [nameOf(i), way].filter((part) => part !== undefined).join(', '))];
      }),
    );
    if (sampled.length > 0) charts.push(bars({ ...common, title: `${kind}@k`, xLabel: 'k', bars: sampled }));
  }
  const subjects = Object.keys(models[0]?.by_subject ?? {});
  if (subjects.length > 1) {
    const height = Math.max(220, 16 * subjects.length * models.length);
    const parts = models.flatMap(({ by_subject: by }, i) =>
      Object.entries(by).map(([subject, figures]) => bar(subject, figures[main] as Figure, nameOf(i))),
    );
    charts.push(bars({ ...common, height, title: `${main} by subject`, horizontal: true, bars: parts }));
  }
  const best = models.map(
    ({ metrics }, i) => `${percent(metrics[main]?.value ?? 0)}${models.length > 1 ? ` ${names[i]}` : ''}`,
  );
  const title = `${basename(results.suite)}, ${results.questions} questions: ${best.join(', ')} (${main})`;
  return toPng(grid(charts, { columns: Math.min(3, charts.length), title }));
}

/** Short names of the models. Equal names get a number. */
const namesOf = ({ models }: BenchmarkResults) => {
  const short = models.map(({ model }) => {
    const parts = model.split('/').filter((part) => part !== '');
    return /^(final|best_model|(step|checkpoint)-\d+)$/.test(parts.at(-1) ?? '')
      ? parts.slice(-2).join('/')
      : (parts.at(-1) ?? model);
  });
  return short.map((name, i) => (short.some((other, k) => k !== i && other === name) ? `${name} (${i + 1})` : name));
};
