/** Plots of an exploration. */
import { basename } from 'node:path';
import { Random } from '../random.ts';
import { bars, type Chart, grid, histogram, inPercent, scatter, toPng } from '../runs/plots/plots.ts';
import type { Collected } from './explore-figures.ts';
import type { Exploration } from './explore-report.ts';
import { quantile } from './summary.ts';

const size = { width: 330, height: 220 };
const scatterPoints = 1500;
const mostTurns = 12;

export async function drawExploration(report: Exploration, collected: Collected): Promise<Uint8Array> {
  const pairs = report.shape === 'preference';
  const panels = [
    lengths('Response length', 'characters', responses(collected, 'characters')),
    lengths('Response words', 'words', responses(collected, 'words')),
    ...(pairs ? pairPanels(report, collected) : promptPanel(collected)),
    turnsPanel(report),
    ...scatterPanel(report, collected),
  ];
  const title = `${basename(report.dataset)}: ${report.examples.toLocaleString('en-US')} ${report.shape} examples`;
  const bias = report.patterns.length_bias;
  const subtitle = bias?.biased
    ? `chosen is longer in ${(100 * bias.chosen_longer).toFixed(1)} % of the pairs`
    : undefined;
  return toPng(grid(panels, { columns: 3, title, subtitle }));
}

type Series = Record<string, number[]>;

function responses(collected: Collected, figure: 'characters' | 'words'): Series {
  const names = [...collected.parts.keys()].filter((name) => name !== 'prompt');
  const shown = names.length > 0 ? names : ['prompt'];
  return Object.fromEntries(shown.map((name) => [name, (collected.parts.get(name) ?? []).map((part) => part[figure])]));
}

/** Up to the 99th percentile, so that outliers do not squeeze everything into one bar. */
function lengths(title: string, unit: string, series: Series, rule?: number): Chart {
  const sorted = Float64Array.from(Object.values(series).flat()).sort();
  const low = quantile(sorted, 0.005);
  const [from, to] = [low < 0 ? low : 0, quantile(sorted, 0.99)];
  const within = Object.entries(series).map(([name, values]) => [
    name,
    values.filter((value) => value >= from && value <= to),
  ]);
  const cut = (sorted.at(-1) ?? 0) > to;
  const xLabel = cut ? `${unit} (the longest 1 % left out)` : unit;
  return histogram({ ...size, title, xLabel, yLabel: 'examples', values: Object.fromEntries(within), rule });
}

function pairPanels(report: Exploration, collected: Collected): Chart[] {
  const { chosen_longer: chosen = 0, rejected_longer: rejected = 0, equal = 0 } = report.patterns.length_bias ?? {};
  const longer = [
    { label: 'chosen', value: chosen },
    { label: 'rejected', value: rejected },
    { label: 'equal', value: equal },
  ];
  return [
    lengths('Length difference (chosen − rejected)', 'characters', { difference: collected.differences() }, 0),
    bars({
      ...size,
      title: 'Which response is longer',
      yLabel: 'share of pairs',
      share: true,
      bars: longer,
      format: inPercent(1),
    }),
  ];
}

function promptPanel(collected: Collected): Chart[] {
  const prompts = collected.parts.get('prompt');
  if (prompts === undefined) return [];
  return [lengths('Prompt length', 'characters', { prompt: prompts.map((part) => part.characters) })];
}

function turnsPanel(report: Exploration): Chart {
  const counts = Object.entries(report.patterns.conversation_depth.by_turns);
  const shown = counts.slice(0, mostTurns).map(([turns, { examples }]) => ({ label: turns, value: examples }));
  const rest = counts.slice(mostTurns).reduce((sum, [, { examples }]) => sum + examples, 0);
  if (rest > 0) shown.push({ label: 'more', value: rest });
  return bars({
    ...size,
    title: "User's turns before the response",
    xLabel: 'turns',
    yLabel: 'examples',
    bars: shown,
  });
}

/** Chosen against rejected length, or response against prompt, for a sample of the examples. */
function scatterPanel(report: Exploration, collected: Collected): Chart[] {
  const pairs = report.shape === 'preference';
  const [x, y] = pairs
    ? ['rejected', 'chosen']
    : ['prompt', [...collected.parts.keys()].find((name) => name !== 'prompt')];
  const [across, up] = [collected.parts.get(x ?? ''), collected.parts.get(y ?? '')];
  // Sets with several kinds of response (right, wrong) have no single response per prompt to plot.
  if (across === undefined || up === undefined || across.length !== up.length) return [];
  const picks = [...new Random(42).permutation(across.length).subarray(0, scatterPoints)];
  const points = picks.map((index) => ({ x: across[index]?.characters ?? 0, y: up[index]?.characters ?? 0 }));
  const limit = quantile(Float64Array.from(points.flatMap((point) => [point.x, point.y])).sort(), 0.99);
  return [
    scatter({
      ...size,
      title: pairs ? 'Chosen against rejected' : 'Response against prompt',
      xLabel: `${x}, characters`,
      yLabel: `${y}, characters`,
      points: points.filter((point) => point.x <= limit && point.y <= limit),
      diagonal: pairs,
    }),
  ];
}
