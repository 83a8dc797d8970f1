/** `report.html` of a policy run: curves, signals and responses. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  curveCharts,
  type MetricRow,
  openRun,
  Report,
  type RolloutReader,
  type StoredEvalRollout,
} from '../../runs/index.ts';
import { signals } from './signals.ts';

export async function writePolicyReport(folder: string): Promise<string> {
  const run = openRun(folder);
  const rows = run.metrics();
  const { algorithm, model } = run.config as { algorithm?: string; model?: string };
  const report = new Report(`${algorithm ?? 'policy'}: ${run.name}`, `${model ?? ''}, ${rows.at(-1)?.step ?? 0} steps`);
  const gain = headline(rows);
  if (gain !== undefined) report.headline(...gain);
  addSignals(report, rows);
  report.section('Curves').charts(curveCharts(rows));
  report.section('Settings').table(['setting', 'value'], settingRows(run.config));
  if (run.rolloutsPath !== undefined) {
    using rollouts = run.rollouts();
    addSamples(report, rollouts);
  }
  const path = join(folder, 'report.html');
  writeFileSync(path, report.html());
  return path;
}

/** The run's change in the first of these metrics that was measured at least twice. */
export function headline(rows: readonly MetricRow[]): [figure: string, meaning: string] | undefined {
  for (const [metric, meaning] of [
    ['eval/accuracy', 'of held-out prompts answered right'],
    ['eval/teacher_kl', 'nats from the teacher, a token, on held-out prompts'],
    ['eval/reward', 'reward on held-out prompts'],
    ['train/accuracy', 'of training responses right'],
    ['train/teacher_kl', 'nats from the teacher, a token, in training'],
    ['train/reward', 'reward in training'],
  ] as const) {
    const values = rows.flatMap((row) => row[metric] ?? []);
    const [first, last] = [values[0], values.at(-1)];
    if (first === undefined || last === undefined || values.length < 2) continue;
    const shown = (value: number) =>
      metric.endsWith('accuracy') ? `${Math.round(100 * value)} %` : String(Number(value.toPrecision(3)));
    return [`${shown(first)} → ${shown(last)}`, meaning];
  }
  return undefined;
}

/** Settings about where files are written, which the report leaves out. */
const places = /^(output_dir|log_dir|rollouts_dir|run_name|report_to|wandb_project)$/;

function settingRows(config: Record<string, unknown>): string[][] {
  return Object.entries(config)
    .filter(([name, value]) => !places.test(name) && value !== null && value !== undefined)
    .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]);
}

export function addSignals(report: Report, rows: Parameters<typeof signals>[0]): void {
  const found = signals(rows);
  if (found.length === 0) return;
  report.section('What the numbers say');
  for (const { message, step } of found) report.note(`Step ${step}: ${message}`);
}

/** The same held-out prompts at the first and the last evaluation, then the best and worst of training. */
function addSamples(report: Report, rollouts: RolloutReader, count = 6): void {
  const evaluated = rollouts.evalQuery();
  const [first, last] = [evaluated[0]?.step, evaluated.at(-1)?.step];
  if (first !== undefined && last !== undefined) {
    // A prompt's greedy response is stored before its samples, so `find` returns it.
    const at = (step: number) =>
      new Map(
        evaluated
          .filter((row) => row.step === step)
          .reverse()
          .map((row) => [row.promptIndex, row]),
      );
    const [before, after] = [at(first), at(last)];
    const answer = (label: string, row: StoredEvalRollout | undefined) =>
      row === undefined ? [] : [{ label, text: row.completion, values: { reward: row.reward } }];
    const shown = [...after.values()].reverse().slice(0, count);
    report.section('Held-out prompts').samples(
      shown.map((row) => ({
        prompt: row.prompt,
        responses: [
          ...(first === last ? [] : answer(`step ${first}`, before.get(row.promptIndex))),
          ...answer(`step ${last}`, row),
        ],
      })),
    );
  }
  const newest = rollouts.steps().at(-1)?.step;
  if (newest === undefined) return;
  const lately: [number, number] = [Math.max(1, newest - 9), newest];
  for (const [title, found] of [
    ['Best of the last steps', rollouts.best(3, lately)],
    ['Worst of the last steps', rollouts.worst(3, lately)],
  ] as const) {
    report.section(title).samples(
      found.map((row) => ({
        prompt: row.prompt,
        responses: [
          { label: `step ${row.step}`, text: row.completion, values: { reward: row.reward, advantage: row.advantage } },
        ],
      })),
    );
  }
}
