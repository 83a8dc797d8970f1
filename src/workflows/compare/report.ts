/** Writes a comparison's results: plot, page and text for people, JSON for programs. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { meanOf, stdOf } from '../../algorithms/index.ts';
import { makeFolder } from '../../folder.ts';
import { type ConfiguredScorer, type JudgeHeading, judgeHeading } from '../../rollouts/scorer.ts';
import { bars, type Chart, grid, lineChart, Report, toPng } from '../../runs/index.ts';
import type { CompareConfig } from './config.ts';
import type { Judgement } from './judge.ts';
import { type ComparisonResults, type Figure, type MethodResult, type MethodRun, qualityName } from './results.ts';

/** What was compared and how it was judged: the head of `comparison_results.json`. */
export interface ComparisonHeading extends JudgeHeading {
  /** The folder or hub name of the model that all methods start from. */
  model: string;
  /** The task or dataset of the prompts. */
  task?: string;
  dataset?: string;
  /** Number of held-out prompts on which every method was judged. */
  prompts: number;
  /** The sampling settings of the judged responses, besides the greedy one. */
  sampling?: { samples: number; temperature: number; top_p: number };
  max_new_tokens: number;
  steps: number;
  seeds: readonly number[];
}

export function comparisonHeading(config: CompareConfig, scorer: ConfiguredScorer, prompts: number): ComparisonHeading {
  const { model, task, dataset, evalSamples: samples, temperature, maxNewTokens, steps, seeds } = config;
  return {
    ...{ model, task, dataset, prompts },
    ...judgeHeading(config, scorer),
    // Judged responses are sampled from the whole distribution.
    ...(samples > 0 && { sampling: { samples, temperature, top_p: 1 } }),
    ...{ max_new_tokens: maxNewTokens, steps, seeds },
  };
}

export async function writeComparison(
  config: CompareConfig,
  heading: ComparisonHeading,
  start: Judgement,
  runs: readonly MethodRun[],
  results: ComparisonResults,
): Promise<void> {
  const folder = join(config.outputDir, 'comparison');
  makeFolder(folder);
  const charts = comparisonCharts(start, runs, results);
  const text = comparisonText(config, start, results);
  const { methods, relative } = results;
  const json = { ...heading, ...methods, relative, start: results.start };
  writeFileSync(join(folder, 'comparison_results.json'), `${JSON.stringify(json, null, 2)}\n`);
  writeFileSync(join(folder, 'comparison_report.txt'), text);
  writeFileSync(
    join(folder, 'comparison.png'),
    await toPng(grid(charts, { title: 'Methods from one start', columns: 3 })),
  );
  const report = new Report(
    'Comparison of methods',
    `${config.model}, ${config.steps} steps, seeds ${config.seeds.join(', ')}`,
  );
  report
    .section('Result')
    .table(...resultTable(start, results))
    .section('Curves')
    .charts(charts);
  report.section('The same prompts, answered by each').samples(responsesSideBySide(runs));
  writeFileSync(join(folder, 'report.html'), report.html());
}

function comparisonCharts(start: Judgement, runs: readonly MethodRun[], results: ComparisonResults): Chart[] {
  const names = Object.keys(results.methods);
  const name = qualityName(start);
  const of = (method: string) => runs.filter((run) => run.method === method);
  const lines = (title: string, points: (run: MethodRun) => Point[], share = false) => {
    const series = names.map((method) => ({ name: method, ...averaged(of(method).map(points)) }));
    const bands = Object.fromEntries(series.map((each) => [each.name, each.spread]));
    const spread = series.some((each) => each.spread.some((value) => value > 0));
    return lineChart({ title, xLabel: 'step', series, share, ...(spread ? { bands } : {}) });
  };
  const judged = (title: string, pick: (judgement: Judgement) => number, share = false) =>
    lines(title, (run) => run.judgements.map((each) => ({ x: each.step, y: pick(each) })), share);
  const logged = (title: string, metric: string) =>
    lines(title, (run) =>
      run.history.flatMap(({ step, metrics }) =>
        metrics[metric] === undefined ? [] : [{ x: step, y: metrics[metric] }],
      ),
    );
  const bar = (title: string, pick: (method: string) => Figure, share = false) =>
    bars({
      title,
      share,
      colorByLabel: true,
      bars: names.map((method) => ({ label: method, value: pick(method).mean, error: pick(method).std })),
    });
  return [
    judged('held-out reward', ({ metrics }) => metrics.reward as number),
    ...(name === 'accuracy' ? [judged('held-out accuracy', ({ metrics }) => metrics.accuracy as number, true)] : []),
    judged('KL to the start, per response', ({ kl }) => kl),
    logged('loss (not comparable between methods)', 'train/loss'),
    bar('seconds per step', (method) => (results.methods[method] as MethodResult).efficiency.seconds_per_step),
    bar(
      `final ${name}`,
      (method) => (results.methods[method] as MethodResult).quality[name] as Figure,
      name === 'accuracy',
    ),
  ];
}

interface Point {
  x: number;
  y: number;
}

/** Mean and standard deviation over seeds at each step that all runs have. */
function averaged(runs: readonly Point[][]): { x: number[]; y: number[]; spread: number[] } {
  const at = new Map<number, number[]>();
  for (const { x, y } of runs.flat()) at.set(x, [...(at.get(x) ?? []), y]);
  const steps = [...at.keys()].sort((a, b) => a - b).filter((step) => at.get(step)?.length === runs.length);
  const values = steps.map((step) => at.get(step) as number[]);
  return { x: steps, y: values.map(meanOf), spread: values.map(stdOf) };
}

function resultTable(start: Judgement, results: ComparisonResults): [string[], (string | number)[][]] {
  // Parts of the reward are only in the JSON. pass@k already covers the accuracy of sampled responses.
  const quality = Object.keys(start.metrics).filter((name) => !/^reward_|^sampled_accuracy$/.test(name));
  const row = (name: string, { quality: own, efficiency, stability }: MethodResult) => [
    name,
    ...quality.map((metric) => shown(own[metric] as Figure)),
    shown(stability.final_kl),
    shown(efficiency.seconds),
  ];
  return [
    ['method', ...quality, 'KL', 'seconds'],
    [
      ['(start)', ...quality.map((metric) => short(start.metrics[metric] as number)), '0', '0'],
      ...Object.entries(results.methods).map(([name, result]) => row(name, result)),
    ],
  ];
}

function comparisonText(config: CompareConfig, start: Judgement, results: ComparisonResults): string {
  const [head, rows] = resultTable(start, results);
  const table = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...table.map((row) => (row[column] ?? '').length)));
  const lines = table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] as number))
      .join('  ')
      .trimEnd(),
  );
  const { winners, time_ratios: ratios } = results.relative;
  const several = config.seeds.length > 1;
  const names = Object.keys(results.methods);
  const improved = names.some((name) => (results.methods[name] as MethodResult).convergence.improvement.mean > 0);
  const nobody =
    names.length === 1 ? 'one method has no rival' : improved ? 'no single one' : 'none improved on the start';
  const verdicts = [
    ['best final quality', winners.quality ?? nobody],
    ['steadiest', winners.stability ?? nobody],
    ['first at 90 % of its own improvement', winners.convergence ?? nobody],
    ['most improvement a minute', winners.efficiency ?? nobody],
    [
      'time against the fastest',
      Object.entries(ratios)
        .map(([name, ratio]) => `${name} ${ratio.toFixed(2)}×`)
        .join(', '),
    ],
  ] as const;
  return `Comparison from ${config.model}: ${config.steps} steps, ${config.seeds.length} seed${several ? 's' : ''}, ${config.evalNumPrompts} held-out prompts
All methods were judged on the same prompts by the same judge, not by their own training signals.
${several ? 'Numbers are mean ± standard deviation over seeds.\n' : 'One seed: differences of a few hundredths may be chance; use --seeds 1,2,3.\n'}
${lines.join('\n')}

${verdicts.map(([what, who]) => `${what.padEnd(38)}${who}`).join('\n')}
`;
}

function responsesSideBySide(runs: readonly MethodRun[]) {
  const firsts = [...Map.groupBy(runs, ({ method }) => method).values()].map((own) => own[0] as MethodRun);
  const prompts = firsts[0]?.responses ?? [];
  return prompts.map(({ prompt }, i) => ({
    prompt,
    responses: firsts.flatMap(({ method, responses }) => {
      const response = responses[i];
      return response === undefined
        ? []
        : [{ label: method, text: response.text, values: { reward: response.reward } }];
    }),
  }));
}

/** A spread as small as rounding errors is shown as none. */
const shown = ({ mean, std }: Figure) =>
  std > 1e-9 * Math.abs(mean) ? `${short(mean)} ± ${short(std, 2)}` : short(mean);
const short = (value: number, digits = 3) => String(Number(value.toPrecision(digits)));
