/** Writes a reward model's evaluation as JSON, text and a plot. */
import { join } from 'node:path';
import { makeFolder } from '../folder.ts';
import type { Decisions } from '../rewards/index.ts';
import {
  bars,
  type Chart,
  grid,
  histogram,
  inPercent,
  reliability,
  scatter,
  toPng,
  writeWhole,
} from '../runs/index.ts';
import type { RewardEvaluation } from './reward.ts';

const percent = (value: number | null | undefined) =>
  value === null || value === undefined ? 'no cases' : `${(100 * value).toFixed(1)} %`;
const rightIn = (share: number | null) => (share === null ? 'there were none' : `right in ${percent(share)}`);
const fixed = (value: number) => value.toFixed(3);

/** Writes the results of `evaluateReward` to a folder: reward_evaluation.json, .txt and .png. */
export async function writeRewardEvaluation(
  folder: string,
  evaluation: RewardEvaluation,
  decided: Decisions,
): Promise<void> {
  makeFolder(folder);
  writeWhole(join(folder, 'reward_evaluation.json'), `${JSON.stringify(evaluation, null, 2)}\n`);
  writeWhole(join(folder, 'reward_evaluation.txt'), `${describeReward(evaluation)}\n`);
  writeWhole(join(folder, 'reward_evaluation.png'), await drawReward(evaluation, decided));
}

export function describeReward(evaluation: RewardEvaluation): string {
  const { length_bias: bias, calibration, margins, ranking, verifier } = evaluation;
  const [low, high] = evaluation.accuracy_interval;
  const pairs = evaluation.type === 'preference';
  const lines = [
    `${evaluation.model} (${evaluation.type}) on ${evaluation.dataset}: ${evaluation.examples} examples`,
    ...Object.entries(evaluation.left_out).map(([reason, count]) => `  left out: ${reason} ${count}`),
    ...truncationLines(evaluation.truncated),
    '',
    `Accuracy               ${percent(evaluation.accuracy)} (95 %: ${percent(low)} to ${percent(high)}); ${pairs ? 'the longer one' : 'the commonest label'}: ${percent(evaluation.baseline_accuracy)}`,
    ...byLabel(evaluation),
    `Scores                 mean ${fixed(evaluation.score.mean)}, spread ${fixed(evaluation.score.std)}`,
    `Margins                mean ${fixed(margins.all.mean)}, median ${fixed(margins.all.median)}, p10 ${fixed(margins.all.p10)}, p90 ${fixed(margins.all.p90)}`,
    `Calibration            ECE ${fixed(calibration.ece)}, Brier ${fixed(calibration.brier)}`,
    `Score against length   correlation ${fixed(bias.score_length_correlation)}`,
  ];
  if (pairs) {
    lines.push(
      `Chosen longer          ${rightIn(bias.accuracy_when_longer)}`,
      `Chosen shorter         ${rightIn(bias.accuracy_when_shorter)}`,
    );
  }
  if (ranking !== undefined) {
    lines.push(
      `Ranking                AUC ${percent(ranking.auc)}, within a problem ${percent(ranking.pairwise_accuracy)}, top 1 ${percent(ranking.top1_accuracy)}`,
    );
    const best = Object.entries(ranking.best_of_n).map(([n, share]) => `${n}: ${percent(share)}`);
    if (best.length > 1) lines.push(`Best of n              ${best.join(', ')}`);
  }
  if (verifier !== undefined) {
    lines.push(
      `Gold verifier          agrees on ${percent(verifier.pairwise_agreement)} of pairs, AUC ${percent(verifier.auc)} over ${verifier.responses} responses`,
    );
  }
  const sources = Object.entries(evaluation.by_source);
  if (sources.length > 0) {
    lines.push('', 'By source');
    for (const [name, { decisions, accuracy }] of sources)
      lines.push(`  ${name.padEnd(32)} ${percent(accuracy).padStart(8)} of ${decisions}`);
  }
  return lines.join('\n');
}

/** The line about responses too long for the model. */
export function truncationLines(count: number): string[] {
  return count === 0
    ? []
    : [
        `  truncated: ${count} ${count === 1 ? 'response has' : 'responses have'} more tokens than the model reads; only the ends were scored`,
      ];
}

function byLabel({ balanced_accuracy: balanced, by_label: labels }: RewardEvaluation): string[] {
  if (balanced === null) return [];
  const rates = Object.entries(labels).map(
    ([label, { decisions, accuracy }]) => `${label}: ${percent(accuracy)} of ${decisions}`,
  );
  return [`Balanced accuracy      ${percent(balanced)} (${rates.join(', ')})`];
}

async function drawReward(evaluation: RewardEvaluation, decided: Decisions): Promise<Uint8Array> {
  const title = `${evaluation.type} reward model: ${percent(evaluation.accuracy)} right on ${evaluation.examples} examples`;
  return toPng(grid(rewardCharts(evaluation, decided), { columns: 3, title }));
}

/** The place of a label among those that a reward model is to tell apart, from the best. */
const rank = (label: string) =>
  /^(chosen|right|step labelled 1)$/.test(label) ? 0 : label === 'step labelled 0' ? 1 : 2;

export function rewardCharts(evaluation: RewardEvaluation, decided: Decisions): Chart[] {
  const size = { width: 330, height: 220 };
  const { decisions, scores } = decided;
  const margins = (right: boolean) =>
    decisions.filter(({ margin }) => margin > 0 === right).map(({ margin }) => margin);
  const charts: Chart[] = [
    histogram({
      ...size,
      title: 'Margins (above 0: right)',
      xLabel: 'margin',
      values: { right: margins(true), wrong: margins(false) },
      rule: 0,
    }),
    reliability({
      ...size,
      title: `Calibration: ECE ${fixed(evaluation.calibration.ece)}`,
      bins: evaluation.calibration.bins,
    }),
    scatter({
      ...size,
      title: 'Score against length',
      xLabel: 'characters',
      yLabel: 'score',
      points: scores.slice(0, 1500).map(({ response, score }) => ({ x: response.length, y: score })),
    }),
  ];
  const byLabel = Map.groupBy(
    decisions.flatMap(({ responses }) => responses),
    ({ label }) => label,
  );
  // What is better comes first, whichever was met first: it has the colour that "right" has in other panels.
  const labels = [...byLabel.keys()].sort((a, b) => rank(a) - rank(b));
  const values = Object.fromEntries(
    labels.map((label) => [label, (byLabel.get(label) ?? []).map(({ score }) => score)]),
  );
  charts.push(histogram({ ...size, title: 'Scores', xLabel: 'score', values, share: true }));
  const sources = Object.entries(evaluation.by_source).slice(0, 12);
  if (sources.length > 1) {
    const shown = sources.map(([label, { accuracy }]) => ({ label, value: accuracy }));
    charts.push(
      bars({
        ...size,
        title: 'Accuracy by source',
        yLabel: 'accuracy',
        format: inPercent(0),
        share: true,
        bars: shown,
      }),
    );
  }
  const best = Object.entries(evaluation.ranking?.best_of_n ?? {});
  if (best.length > 1) {
    const shown = best.map(([label, value]) => ({ label, value }));
    charts.push(
      bars({
        ...size,
        title: 'Best of n',
        xLabel: 'n',
        yLabel: 'solved',
        format: inPercent(1),
        share: true,
        bars: shown,
      }),
    );
  }
  return charts;
}
