/** Writes results on a ranked set: `reward_suite.json`, `.txt`, `.png`, and every item with its scores. */
import { basename, join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { bars, type Chart, grid, histogram, inPercent, scatter, toPng, writeWhole } from '../../runs/index.ts';
import { truncationLines } from '../reward-report.ts';
import type { Figure } from '../statistics.ts';
import { credit } from './credit.ts';
import { lengthDifference, type ScoredItem } from './figures.ts';
import type { RewardSuiteResults } from './reward-suite.ts';
import type { TiesFigures } from './ties.ts';

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const between = ([low, high]: readonly [number, number]) => `${percent(low)} to ${percent(high)}`;
const told = ({ value, interval, questions }: Figure) =>
  `${percent(value).padStart(7)} of ${questions} (95 %: ${between(interval)})`;
const orNone = (figure: Figure | null) => (figure === null ? '  there were none' : told(figure));

/** Writes the results of `evaluateRewardSuite` to a folder. */
export async function writeRewardSuite(
  folder: string,
  results: RewardSuiteResults & { readonly scored: readonly ScoredItem[] },
): Promise<void> {
  makeFolder(folder);
  writeWhole(join(folder, 'reward_suite.json'), `${JSON.stringify(results, null, 2)}\n`);
  writeWhole(join(folder, 'reward_suite.txt'), `${describeRewardSuite(results)}\n`);
  writeWhole(join(folder, 'reward_suite.png'), await drawRewardSuite(results));
  const lines = results.scored.map((item) => `${JSON.stringify({ ...item, credit: credit(item) })}\n`);
  writeWhole(join(folder, 'reward_suite_items.jsonl'), lines.join(''));
}

/** The results as text. */
export function describeRewardSuite(results: RewardSuiteResults): string {
  const { length, position } = results;
  const lines = [
    `${results.model} on ${results.suite}: ${results.items} items, ${results.responses} responses`,
    ...truncationLines(results.truncated),
    '',
    `Accuracy                ${told(results.accuracy)}; at random ${percent(results.chance)}`,
    ...(results.subset_mean === null ? [] : [`Mean over subsets       ${percent(results.subset_mean).padStart(7)}`]),
    ...(results.section_mean === null ? [] : [`Mean over sections      ${percent(results.section_mean).padStart(7)}`]),
    '',
    `Longest is best         ${percent(length.longest_is_best).padStart(7)} (what length alone gives)`,
    `Right one longer        ${orNone(length.right_longer)}`,
    `Right one shorter       ${orNone(length.right_shorter)}`,
    ...(length.right_equal === null ? [] : [`As long as the others   ${told(length.right_equal)}`]),
    equalLength(results),
    '',
    position.ties === 0
      ? 'Ties                    none: the order of the responses decides nothing'
      : `Ties                    ${position.ties}; first of equals ${percent(position.first_of_equals)}, last ${percent(position.last_of_equals)}, ties wrong ${percent(position.ties_wrong)}`,
    ...(results.ties === null ? [] : ['', describeTies(results.ties)]),
    ...table('By place of the best', position.by_place),
    ...table('By section', results.sections),
    ...table('By subset', results.by_subset),
  ];
  return lines.join('\n');
}

/** The subset "Ties", by RewardBench 2's own score. */
function describeTies(ties: TiesFigures): string {
  const {
    tied_accuracy: tied,
    ref_accuracy: ref,
    correctness_preferred: lead,
    correctness_preferred_hard: hard,
  } = ties;
  return `Subset Ties             ${told(ties.score)}: right above wrong ${percent(tied)} (one right answer: ${percent(ref)}), by more than right ones differ ${percent(lead)} (both questions: ${percent(hard)})`;
}

function equalLength({ length: { at_equal_length: fit } }: RewardSuiteResults): string {
  if (fit === null) return 'At equal length         no finite fit: length does not vary, or separates right from wrong';
  const slope = `${fit.log_odds_per_100_characters >= 0 ? '+' : ''}${fit.log_odds_per_100_characters.toFixed(2)}`;
  return `At equal length         ${percent(fit.accuracy).padStart(7)} (95 %: ${between(fit.interval)}); log-odds ${slope} for each 100 characters more`;
}

function table(title: string, figures: Readonly<Record<string, Figure>>): string[] {
  const entries = Object.entries(figures);
  if (entries.length < 2) return [];
  return ['', title, ...entries.map(([name, figure]) => `  ${name.padEnd(32)} ${told(figure)}`)];
}

async function drawRewardSuite(
  results: RewardSuiteResults & { readonly scored: readonly ScoredItem[] },
): Promise<Uint8Array> {
  const size = { width: 330, height: 220 };
  const share = { ...size, format: inPercent(0), share: true, yLabel: 'accuracy' } as const;
  const bar = ([label, { value, interval }]: [string, Figure]) => ({ label, value, interval });
  const { length, position, scored } = results;
  const lengths = Object.entries({
    all: results.accuracy,
    longer: length.right_longer,
    shorter: length.right_shorter,
    equal: length.right_equal,
  }).filter((entry): entry is [string, Figure] => entry[1] !== null);
  const margins = scored.map(({ scores, right }) => {
    const best = (wanted: boolean) => Math.max(...scores.filter((_, i) => right[i] === wanted));
    return best(true) - best(false);
  });
  const charts: Chart[] = [
    bars({ ...share, title: 'Accuracy by length of the right one', bars: lengths.map(bar) }),
    histogram({
      ...size,
      title: 'Best right less best wrong score',
      xLabel: 'margin',
      rule: 0,
      values: { right: margins.filter((margin) => margin > 0), wrong: margins.filter((margin) => margin <= 0) },
    }),
    scatter({
      ...size,
      title: 'Margin against length',
      xLabel: 'characters more in the right one',
      yLabel: 'margin',
      points: scored.slice(0, 1500).map((item, i) => ({ x: lengthDifference(item), y: margins[i] as number })),
    }),
  ];
  const sections = Object.entries(results.sections);
  if (sections.length > 1) charts.push(bars({ ...share, title: 'By section', bars: sections.map(bar) }));
  const places = Object.entries(position.by_place);
  if (places.length > 1) charts.push(bars({ ...share, title: 'By place of the best', bars: places.map(bar) }));
  const subsets = Object.entries(results.by_subset);
  if (subsets.length > 1) {
    const height = Math.max(220, 16 * subsets.length);
    charts.push(bars({ ...share, height, horizontal: true, title: 'By subset', bars: subsets.map(bar) }));
  }
  const title = `${basename(results.suite)}: ${percent(results.accuracy.value)} of ${results.items} items right`;
  return toPng(grid(charts, { columns: 3, title }));
}
