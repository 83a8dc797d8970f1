/** Writes the results of a reward model's run: final_results.json and evaluation/ with the error analysis. */
import { writeFileSync } from 'node:fs';
import type { Dataset, TokenStore } from '../../data/index.ts';
import { makeFolder } from '../../folder.ts';
import type { Model } from '../../models/index.ts';
import {
  calibration,
  type Decision,
  type Decisions,
  decisionsOf,
  type ErrorAnalysis,
  errorAnalysis,
  RewardModelScorer,
} from '../../rewards/index.ts';
import { bars, type Chart, grid, histogram, inPercent, type Run, scatter, toPng } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { TrainResult } from '../loop/loop.ts';
import type { RewardConfig } from './config.ts';

interface ReportInput {
  run: Run;
  result: TrainResult;
  config: RewardConfig;
  model: Model;
  tokenizer: Tokenizer;
  validation: Dataset | undefined;
  tally: TokenStore['tally'];
  signal?: AbortSignal;
}

export async function writeRewardReport(input: ReportInput): Promise<void> {
  const { run, result, config, tally } = input;
  const results: Record<string, unknown> = {
    type: config.type,
    steps: result.step,
    ended: result.ended,
    best: result.best ?? null,
    checkpoint: result.checkpoint ?? null,
    training_data: tally,
  };
  if (input.validation !== undefined && config.analysisSamples > 0) {
    const decided = await heldOutDecisions(input, input.validation);
    const pairs = config.type === 'preference';
    const analysis = errorAnalysis(decided.decisions, { pairs });
    const { ece, brier } = calibration(decided.forecasts, { from: pairs ? 0.5 : 0 });
    Object.assign(results, {
      held_out: {
        decisions: analysis.decisions,
        accuracy: analysis.accuracy,
        accuracy_interval: analysis.accuracy_interval,
      },
      calibration: { ece, brier },
    });
    makeFolder(run.path('evaluation'));
    run.writeJson('evaluation/error_analysis.json', analysis);
    writeFileSync(run.path('evaluation', 'error_analysis_report.txt'), errorReport(analysis, config.type));
    writeFileSync(run.path('evaluation', 'error_analysis_plots.png'), await errorPlots(decided, analysis, config.type));
  }
  run.writeJson('final_results.json', results);
}

/** Decisions on the first held-out examples, scored from text as the saved model scores them. */
async function heldOutDecisions(input: ReportInput, validation: Dataset): Promise<Decisions> {
  const { config, signal } = input;
  const examples: Parameters<typeof decisionsOf>[1][number][] = [];
  for await (const example of validation) {
    examples.push(example as (typeof examples)[number]);
    if (examples.length >= config.analysisSamples) break;
  }
  return decisionsOf(new RewardModelScorer(input.model, input.tokenizer), examples, { signal });
}

const percent = (value: number | null) => (value === null ? 'no cases' : `${(100 * value).toFixed(1)} %`);
const fixed = (value: number) => value.toFixed(3);

const lengthText = (mean: number, cases: number) => (cases === 0 ? 'none' : mean.toFixed(1));

export function errorReport(analysis: ErrorAnalysis, type: RewardConfig['type']): string {
  const { length_bias: bias, close_calls: close, margins } = analysis;
  // For a pair, length means how much longer the chosen response is.
  const lengthLabel =
    type === 'preference' ? 'chosen longer by, where right, wrong' : 'mean length where right, where wrong';
  const [low, high] = analysis.accuracy_interval;
  const lines = [
    `Error analysis of a reward model (${type})`,
    '',
    `Decisions   ${analysis.decisions}`,
    `Errors      ${analysis.errors}`,
    `Accuracy    ${percent(analysis.accuracy)} (95 %: ${percent(low)} to ${percent(high)})`,
    ...(analysis.balanced_accuracy === null ? [] : [`Balanced    ${percent(analysis.balanced_accuracy)}`]),
    ...Object.entries(analysis.by_label).map(
      ([label, { decisions, accuracy }]) => `  ${label.padEnd(20)} ${percent(accuracy).padStart(8)} of ${decisions}`,
    ),
    '',
    'Length',
    `  correlation of margin with length       ${fixed(bias.margin_length_correlation)}`,
    `  ${lengthLabel.padEnd(38)}  ${lengthText(bias.mean_length_when_right, analysis.decisions - analysis.errors)}, ${lengthText(bias.mean_length_when_wrong, analysis.errors)} characters`,
  ];
  if (type === 'preference') {
    lines.push(
      `  accuracy where the chosen is longer     ${percent(bias.accuracy_when_longer)}`,
      `  accuracy where the chosen is shorter    ${percent(bias.accuracy_when_shorter)}`,
      `  errors that preferred the longer one    ${percent(bias.errors_preferring_longer)}`,
    );
  }
  const { low_confidence_errors: unsure, high_confidence_errors: sure } = analysis;
  lines.push(
    '',
    'Confidence',
    `  close calls (margin under ${close.threshold})            ${close.count} (${percent(close.share)})${close.accuracy === null ? '' : `, right in ${percent(close.accuracy)}`}`,
    `  errors under ${percent(unsure.below)} sure               ${unsure.count} (${percent(unsure.share_of_errors)} of the errors)`,
    `  errors over ${percent(sure.above)} sure                ${sure.count} (${percent(sure.share_of_errors)} of the errors)`,
    '',
    'Margins                mean      std      p10   median      p90',
  );
  for (const [name, spread] of Object.entries(margins)) {
    if (spread === null) continue;
    const cells = [spread.mean, spread.std, spread.p10, spread.median, spread.p90].map((value) =>
      fixed(value).padStart(9),
    );
    lines.push(`  ${name.padEnd(15)}${cells.join('')}`);
  }
  const sources = Object.entries(analysis.by_source);
  if (sources.length > 0) {
    lines.push('', 'By source');
    for (const [name, { decisions, accuracy }] of sources)
      lines.push(`  ${name.padEnd(32)} ${percent(accuracy).padStart(8)} of ${decisions}`);
  }
  if (analysis.examples.length > 0) lines.push('', `The ${analysis.examples.length} worst errors`);
  for (const [i, example] of analysis.examples.entries()) {
    lines.push('', `${i + 1}. margin ${fixed(example.margin)}, ${percent(example.confidence)} sure`);
    lines.push(`   prompt: ${oneLine(example.prompt, true)}`);
    for (const { label, text, score } of example.responses)
      lines.push(`   ${label} (${fixed(score)}): ${oneLine(text)}`);
  }
  return `${lines.join('\n')}\n`;
}

function oneLine(text: string, end = false): string {
  const line = text.replace(/\s+/g, ' ').trim();
  if (line.length <= 240) return line;
  return end ? `…${line.slice(-240)}` : `${line.slice(0, 240)}…`;
}

async function errorPlots(
  { decisions }: Decisions,
  analysis: ErrorAnalysis,
  type: RewardConfig['type'],
): Promise<Uint8Array> {
  const title = `Error analysis: ${(100 * analysis.accuracy).toFixed(1)} % of ${analysis.decisions} decisions are right`;
  return toPng(grid(errorCharts(decisions, analysis, type), { columns: 3, title }));
}

export function errorCharts(
  decisions: readonly Decision[],
  analysis: ErrorAnalysis,
  type: RewardConfig['type'],
): Chart[] {
  const charts = [...certainty(decisions), errorCounts(analysis)];
  const named = { 'Accuracy by source': analysis.by_source, 'Accuracy by true label': analysis.by_label };
  for (const [title, rates] of Object.entries(named)) {
    const shown = Object.entries(rates).slice(0, 12);
    if (shown.length > 1)
      charts.push(accuracies(title, Object.fromEntries(shown.map(([name, { accuracy }]) => [name, accuracy]))));
  }
  // Length is omitted if it never varies, as in a task's pairs.
  const varied = decisions.some(({ length }) => length !== decisions[0]?.length);
  if (varied) charts.push(...byLength(decisions, analysis, type === 'preference'));
  return charts;
}

const size = { width: 330, height: 220 };

/** A quantity of right and of wrong decisions, as two lists. */
function rightAndWrong<T>(decisions: readonly Decision[], quantity: (decision: Decision) => T) {
  const right = decisions.filter(({ margin }) => margin > 0);
  const wrong = decisions.filter(({ margin }) => !(margin > 0));
  return { right: right.map(quantity), wrong: wrong.map(quantity) };
}

function certainty(decisions: readonly Decision[]): Chart[] {
  return [
    histogram({
      ...size,
      title: 'Margins (above 0: right)',
      xLabel: 'margin',
      values: rightAndWrong(decisions, ({ margin }) => margin),
      rule: 0,
    }),
    // Shares, so that the few wrong decisions remain visible.
    histogram({
      ...size,
      title: 'How sure it was',
      xLabel: 'stated chance',
      share: true,
      bins: 20,
      values: rightAndWrong(decisions, ({ margin }) => 1 / (1 + Math.exp(-Math.abs(margin)))),
    }),
  ];
}

function errorCounts({ errors, close_calls: close, ...analysis }: ErrorAnalysis): Chart {
  const shown = [
    { label: 'errors', value: errors },
    { label: 'close calls', value: close.count },
    { label: 'unsure errors', value: analysis.low_confidence_errors.count },
    { label: 'sure errors', value: analysis.high_confidence_errors.count },
  ];
  return bars({ ...size, title: 'Errors and close calls', yLabel: 'decisions', bars: shown });
}

function byLength(decisions: readonly Decision[], analysis: ErrorAnalysis, pairs: boolean): Chart[] {
  const xLabel = pairs ? 'chosen − rejected, characters' : 'characters';
  const points = rightAndWrong(decisions.slice(0, 1500), ({ margin, length }) => ({ x: length, y: margin }));
  const charts = [
    histogram({
      ...size,
      title: pairs ? 'Length difference' : 'Length',
      xLabel,
      share: true,
      values: rightAndWrong(decisions, ({ length }) => length),
    }),
    scatter({
      ...size,
      title: 'Margin against length',
      xLabel,
      yLabel: 'margin',
      // The right ones first, whichever came first: the colours are those of the other panels.
      points: Object.entries(points).flatMap(([group, own]) => own.map((point) => ({ ...point, group }))),
    }),
  ];
  if (pairs) {
    const { accuracy_when_longer: longer, accuracy_when_shorter: shorter } = analysis.length_bias;
    const rates = { 'chosen longer': longer, 'chosen shorter': shorter, all: analysis.accuracy };
    charts.push(accuracies('Accuracy by which is longer', rates));
  }
  return charts;
}

function accuracies(title: string, rates: Record<string, number | null>): Chart {
  const shown = Object.entries(rates).flatMap(([label, value]) => (value === null ? [] : [{ label, value }]));
  return bars({ ...size, title, yLabel: 'accuracy', format: inPercent(1), share: true, bars: shown });
}
