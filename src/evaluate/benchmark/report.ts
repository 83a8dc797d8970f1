/** Writes a benchmark: `benchmark.json`, `benchmark.txt`, `benchmark.png`, and every question with its answers as JSON lines. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bars, type Chart, grid, toPng } from '../../runs/index.ts';
import type { Figure, PairedTest } from '../statistics.ts';
import type { BenchmarkEvaluation } from './benchmark.ts';
import type { BenchmarkResults } from './results.ts';

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const between = ([low, high]: readonly [number, number]) => `${percent(low)} to ${percent(high)}`;
const told = ({ value, interval }: Figure) => `${percent(value).padStart(7)} (95 %: ${between(interval)})`;

/** The names of the samples files: of the model, and of the one it is compared with. */
export const sampleFiles = ['samples.jsonl', 'samples_against.jsonl'] as const;

/** Writes the results of `evaluateBenchmark` to a folder. */
export async function writeBenchmark(folder: string, evaluation: BenchmarkEvaluation): Promise<void> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'benchmark.json'), `${JSON.stringify(evaluation, null, 2)}\n`);
  writeFileSync(join(folder, 'benchmark.txt'), `${describeBenchmark(evaluation)}\n`);
  writeFileSync(join(folder, 'benchmark.png'), await drawBenchmark(evaluation));
  for (const [i, outcomes] of evaluation.outcomes.entries()) {
    const lines = outcomes.map(({ sample, scores }) => `${JSON.stringify({ ...sample, scores })}\n`);
    writeFileSync(join(folder, sampleFiles[i] as string), lines.join(''));
  }
}

/** What each metric counts, for the report. */
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
  const { shots, shots_from: from, sampling, comparison } = results;
  const lines = [
    `${results.suite} (${results.format}, by ${results.mode === 'choice' ? 'log-prob of choices' : 'written answers'}): ${results.questions} questions`,
    `  ${results.prompt} prompts, ${shots === 0 ? 'no examples' : `${shots} examples from ${from}`}, seed ${results.seed}`,
    ...(sampling
      ? [`  ${sampling.samples} samples a question, temperature ${sampling.temperature}, top-p ${sampling.top_p}`]
      : []),
    ...Object.entries(results.left_out).map(([reason, count]) => `  left out: ${reason} ${count}`),
  ];
  for (const figures of results.models) {
    lines.push('', figures.model);
    for (const [name, figure] of Object.entries(figures.metrics))
      lines.push(`  ${name.padEnd(20)} ${told(figure)}${meanings[name] === undefined ? '' : `  ${meanings[name]}`}`);
    if (figures.too_long > 0) lines.push(`  ${figures.too_long} questions do not fit the model and count as wrong`);
    if (figures.shortened_prompts > 0)
      lines.push(`  ${figures.shortened_prompts} prompts have fewer examples, for lack of room`);
    if (figures.cut_off) lines.push(`  ${figures.cut_off} greedy responses were cut at the limit of new tokens`);
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

/** The figures of a benchmark as a picture. */
export async function drawBenchmark(results: BenchmarkResults): Promise<Uint8Array> {
  const several = results.models.length > 1;
  const names = namesOf(results);
  const shown = Object.keys(results.models[0]?.metrics ?? {});
  const bar = (label: string, { value, interval }: Figure, i: number) => ({
    ...{ label, value, interval },
    ...(several && { group: names[i] }),
  });
  const common = { format: '.1%', share: true, yLabel: 'share', height: 220 } as const;
  const charts: Chart[] = [
    bars({
      ...common,
      title: 'Accuracy (95 % intervals)',
      width: Math.max(330, 46 * shown.length * results.models.length),
      bars: results.models.flatMap(({ metrics }, i) =>
        Object.entries(metrics).map(([name, figure]) => bar(name, figure, i)),
      ),
    }),
  ];
  const subjects = Object.keys(results.models[0]?.by_subject ?? {});
  const [main = ''] = shown;
  if (subjects.length > 1) {
    charts.push(
      bars({
        ...common,
        title: `${main} by subject`,
        horizontal: true,
        height: Math.max(220, 14 * subjects.length * results.models.length),
        bars: results.models.flatMap(({ by_subject: parts }, i) =>
          Object.entries(parts).map(([subject, figures]) => bar(subject, figures[main] as Figure, i)),
        ),
      }),
    );
  }
  const best = results.models.map(
    ({ metrics }, i) => `${several ? `${names[i]} ` : ''}${percent(metrics[main]?.value ?? 0)}`,
  );
  const title = `${results.suite}: ${best.join(', ')} ${main} on ${results.questions} questions`;
  return toPng(grid(charts, { columns: 2, title }));
}

/** Two models' names, told apart by a number where they are equal. */
const namesOf = ({ models }: BenchmarkResults) =>
  models.map(({ model }, i) =>
    models.some((other, k) => k !== i && other.model === model) ? `${model} (${i + 1})` : model,
  );
