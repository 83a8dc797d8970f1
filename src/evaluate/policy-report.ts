/** Writes a policy's evaluation: `policy_evaluation.json`, a plot, and a page with responses side by side. */
import { join } from 'node:path';
import { makeFolder } from '../folder.ts';
import type { CacheDtype } from '../models/index.ts';
import type { JudgeHeading } from '../rollouts/scorer.ts';
import { bars, type Chart, grid, histogram, Report, scatter, toPng, writeWhole } from '../runs/index.ts';
import { counted } from '../spelling.ts';
import type { EvaluatedResponse, PolicyEvaluation, PolicySummary } from './policy.ts';

/** What was evaluated and how: the head of `policy_evaluation.json`. */
export interface PolicyEvaluationHeading extends JudgeHeading {
  /** Folders or hub names. */
  model: string;
  reference?: string;
  opponent?: string;
  /** The source of the prompts: task, environment or dataset. */
  task?: string;
  env?: string;
  agent?: string;
  dataset?: string;
  /** The number of prompts that the model's own run trains on, if known. */
  trained_on?: number;
  /** The sampling settings of the responses besides the greedy one. */
  sampling?: { samples: number; temperature: number; top_p: number };
  max_new_tokens?: number;
  cache_dtype?: CacheDtype;
  seed?: number;
}

/** Writes the results of `evaluatePolicy` to a folder: JSON, a plot and an HTML page. */
export async function writePolicyEvaluation(
  folder: string,
  evaluation: PolicyEvaluation,
  names: { policy: string; opponent?: string },
  heading?: PolicyEvaluationHeading,
): Promise<void> {
  makeFolder(folder);
  const charts = evaluationCharts(evaluation, names);
  writeWhole(join(folder, 'policy_evaluation.json'), `${JSON.stringify({ ...heading, ...evaluation }, null, 2)}\n`);
  writeWhole(join(folder, 'policy_evaluation.png'), await toPng(grid(charts, { title: names.policy })));
  const report = new Report(`Evaluation of ${names.policy}`, promptsSaid(evaluation.summary.prompts, heading));
  if (heading !== undefined) report.section('What was evaluated').table(['', ''], headingRows(heading));
  report.section('Figures').table(['', ''], summaryRows(evaluation.summary)).section('Pictures').charts(charts);
  const shown = (label: string, { text, reward, lengthTokens }: EvaluatedResponse) => ({
    label,
    text,
    values: { reward, tokens: lengthTokens },
  });
  report.section('Responses').samples(
    evaluation.prompts.slice(0, 12).map(({ prompt, greedy, opponent }) => ({
      prompt,
      responses: [
        shown(names.policy, greedy),
        ...(opponent === undefined ? [] : [shown(names.opponent ?? 'opponent', opponent)]),
      ],
    })),
  );
  writeWhole(join(folder, 'policy_evaluation.html'), report.html());
}

/**
 * Says whether the prompts are held out. Test problems of tasks always are; for a dataset's prompts only the run itself
 * can tell.
 */
function promptsSaid(
  count: number,
  { task, env, agent, trained_on: trained }: Partial<PolicyEvaluationHeading> = {},
): string {
  if (trained) return `${count} prompts, ${trained} of them trained on`;
  return (task ?? env ?? agent) !== undefined || trained === 0 ? `${count} held-out prompts` : `${count} prompts`;
}

function headingRows({ sampling, ...heading }: PolicyEvaluationHeading): [string, string][] {
  return Object.entries({ ...heading, ...sampling }).flatMap(([name, value]) =>
    value === undefined ? [] : [[name.replaceAll('_', ' '), String(value ?? 'none')] as [string, string]],
  );
}

function evaluationCharts(
  { prompts, summary }: PolicyEvaluation,
  names: { policy: string; opponent?: string },
): Chart[] {
  const own = prompts.map(({ greedy }) => greedy);
  const all = prompts.flatMap(({ greedy, sampled }) => [greedy, ...sampled]);
  const passes = Object.entries(summary.pass_at_k ?? {});
  const { win_rate: duel } = summary;
  return [
    histogram({ title: 'reward of all responses', values: all.map(({ reward }) => reward) }),
    histogram({ title: 'length in tokens', values: all.map(({ lengthTokens }) => lengthTokens) }),
    scatter({
      title: 'reward against length (greedy)',
      xLabel: 'tokens',
      yLabel: 'reward',
      points: own.map(({ lengthTokens: x, reward: y }) => ({ x, y })),
    }),
    ...(passes.length === 0
      ? []
      : [bars({ title: 'pass@k', share: true, bars: passes.map(([k, value]) => ({ label: k, value })) })]),
    ...(duel === undefined
      ? []
      : [
          bars({
            title: `${names.policy} against ${names.opponent ?? 'the opponent'}`,
            bars: [
              { label: 'wins', value: duel.wins },
              { label: 'ties', value: duel.ties },
              { label: 'losses', value: duel.losses },
            ],
          }),
        ]),
  ];
}

export function summaryRows(summary: PolicySummary): [string, string][] {
  const { reward, sampled_reward: sampled, length_tokens: length, kl, win_rate: duel } = summary;
  const rows: [string, string][] = [
    ['prompts', String(summary.prompts)],
    ['reward, greedy', `${short(reward.mean)} ± ${short(reward.std)} (${short(reward.min)} to ${short(reward.max)})`],
  ];
  for (const [name, value] of Object.entries(summary.reward_parts)) rows.push([`  ${name}`, short(value)]);
  if (sampled !== undefined) rows.push(['reward, sampled', `${short(sampled.mean)} ± ${short(sampled.std)}`]);
  if (summary.accuracy !== undefined) rows.push(['accuracy, greedy', short(summary.accuracy)]);
  for (const [k, value] of Object.entries(summary.pass_at_k ?? {})) rows.push([`pass@${k}`, short(value)]);
  rows.push(
    ['length in tokens', `${short(length.mean)} ± ${short(length.std)}`],
    ['ended by itself', short(summary.ended)],
  );
  if (summary.truncated > 0)
    rows.push(['truncated', `${summary.truncated} responses have more tokens than the reward model reads`]);
  if (kl !== undefined)
    rows.push(['KL to the reference', `${short(kl.per_response)} per response, ${short(kl.per_token)} per token`]);
  if (duel !== undefined)
    rows.push([
      'win rate',
      `${short(duel.rate)} (95 % ${short(duel.low)} to ${short(duel.high)}; ${counted(duel.wins, 'win')}, ${counted(duel.ties, 'tie')}, ${counted(duel.losses, 'loss')})`,
    ]);
  return rows;
}

const short = (value: number) => String(Number(value.toPrecision(3)));
