/** The measurements as a few lines of text and plots. */
import { bars, type Chart, histogram, inPercent, scatter } from '../../runs/index.ts';
import type { TokenDivergence } from './divergence.ts';
import type { LayerLoss } from './layers.ts';
import type { QuantizePolicyResults, QuantizeRewardResults, ScorePair } from './results.ts';

export function rewardReport(results: QuantizeRewardResults): string {
  const { original, quantized, comparison: found, quant_type: type } = results;
  return lines([
    `${results.model}: ${results.type} reward model in ${type}, ${original.examples} examples`,
    '',
    row('', 'original', type, ''),
    row('accuracy', short(original.accuracy), short(quantized.accuracy), `${signed(-found.accuracy_drop)}`),
    row('loss', short(original.loss), short(quantized.loss), signed(found.loss_increase)),
    ...sizeRows(results),
    row(
      'examples/s',
      short(original.examples_per_second),
      short(quantized.examples_per_second),
      `${short(found.speedup_eval)}×`,
    ),
    '',
    `Scores: correlation ${short(found.score_correlation)}, root mean square difference ${short(found.score_rms_difference)}.`,
    ...layerLines(results.layers),
  ]);
}

export function policyReport(results: QuantizePolicyResults): string {
  const { original, quantized, comparison: found, kl_evaluation: kl, quant_type: type } = results;
  return lines([
    `${results.model} in ${type}: ${kl.total_tokens} tokens of ${kl.num_completions} responses of the original`,
    '',
    row('', 'original', type, ''),
    row('log-prob/token', short(kl.mean_original_logprob), short(kl.mean_quantized_logprob), signed(-kl.kl_divergence)),
    ...sizeRows(results),
    row(
      'read tokens/s',
      short(original.eval_tokens_per_second),
      short(quantized.eval_tokens_per_second),
      `${short(found.speedup_eval)}×`,
    ),
    row(
      'written tokens/s',
      short(original.generated_tokens_per_second),
      short(quantized.generated_tokens_per_second),
      `${short(found.speedup_generation)}×`,
    ),
    '',
    `KL(original‖${type}) per token: ${short(kl.kl_exact)} ± ${short(kl.kl_exact_standard_error)} over the whole vocabulary,`,
    `${short(kl.kl_divergence)} ± ${short(kl.kl_standard_error)} on the tokens alone. The same token comes first at ${short(100 * kl.same_top_token)} % of places.`,
    ...layerLines(results.layers),
  ]);
}

function sizeRows({ original, quantized, comparison }: QuantizeRewardResults | QuantizePolicyResults): string[] {
  return [
    row(
      'MiB in memory',
      short(original.size_mb),
      short(quantized.size_mb),
      `−${short(comparison.size_reduction_pct)} %`,
    ),
  ];
}

function layerLines(layers: readonly LayerLoss[]): string[] {
  const worst = worstLayers(layers, 5).map(
    ({ layer, error }) => `${layer} (${Number((100 * error).toPrecision(2))} %)`,
  );
  return [`Largest errors of blocks, as a share of what they add: ${worst.join(', ')}.`];
}

const worstLayers = (layers: readonly LayerLoss[], count: number) =>
  [...layers].sort((a, b) => b.error - a.error).slice(0, count);

export function rewardCharts(results: QuantizeRewardResults, scores: readonly ScorePair[]): Chart[] {
  const type = results.quant_type;
  return [
    scatter({
      title: 'score of each response',
      xLabel: 'original',
      yLabel: type,
      points: scores.map(({ original: x, quantised: y }) => ({ x, y })),
      diagonal: true,
    }),
    histogram({
      title: 'change of the score',
      xLabel: `${type} − original`,
      values: scores.map(({ original, quantised }) => quantised - original),
      rule: 0,
    }),
    layerChart(results.layers),
  ];
}

export function policyCharts(results: QuantizePolicyResults, tokens: readonly TokenDivergence[]): Chart[] {
  const points = tokens.flatMap(({ original, quantised }) =>
    Array.from(original, (x, i) => ({ x, y: quantised[i] as number })),
  );
  const every = Math.max(1, Math.ceil(points.length / 2000));
  const kls = tokens.flatMap(({ kl }) => Array.from(kl, (value) => Math.log10(Math.max(value, 1e-8))));
  return [
    histogram({ title: 'KL of each token', xLabel: 'log10 of nats', values: kls }),
    scatter({
      title: 'log-prob of each token',
      xLabel: 'original',
      yLabel: results.quant_type,
      points: points.filter((_, i) => i % every === 0),
      diagonal: true,
    }),
    layerChart(results.layers),
  ];
}

/** The blocks' errors in model order. With many blocks, only the largest errors. */
function layerChart(layers: readonly LayerLoss[]): Chart {
  const shown = worstLayers(layers, 16).sort((a, b) => a.layer - b.layer);
  return bars({
    title: shown.length < layers.length ? 'blocks with the largest errors' : 'error of each block',
    xLabel: 'block',
    yLabel: 'share of what it adds',
    bars: shown.map(({ layer, error }) => ({ label: String(layer), value: error })),
    format: inPercent(2),
  });
}

const lines = (all: readonly string[]) => `${all.join('\n')}\n`;
const row = (...[name, ...cells]: [string, string, string, string]) =>
  `${name.padEnd(18)}${cells.map((cell) => cell.padStart(12)).join('')}`.trimEnd();
const short = (value: number) => String(Number(value.toPrecision(4))).replace('-', '−');
const signed = (value: number) => `${value < 0 ? '' : '+'}${short(value)}`;
