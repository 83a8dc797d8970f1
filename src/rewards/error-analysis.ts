/**
 * Where a reward model goes wrong: how often, how confidently, and whether length misleads it.
 *
 *     const analysis = errorAnalysis(decisions);
 *     analysis.high_confidence_errors.count;
 */
import type { Decision, Forecast } from './decisions.ts';

/** Decisions with a smaller margin are close calls. */
export const closeCall = 0.1;
/** Errors made with a confidence below this count as low-confidence errors. */
export const lowConfidence = 0.6;
/** Errors made with a confidence above this count as high-confidence errors. */
export const highConfidence = 0.9;
const shownErrors = 20;

/** Mean and spread of a list of numbers. */
export interface Spread {
  mean: number;
  std: number;
  p10: number;
  median: number;
  p90: number;
}

/** An accuracy and the number of decisions behind it. */
export interface Rate {
  decisions: number;
  accuracy: number;
}

/** Error statistics of a reward model, as they are written to reports. */
export interface ErrorAnalysis {
  decisions: number;
  errors: number;
  accuracy: number;
  /** 95 %, by Wilson's score interval. */
  accuracy_interval: [number, number];
  length_bias: {
    /** Correlation of margin and length (for pairs: how much longer the chosen response is). */
    margin_length_correlation: number;
    /** In characters. For pairs: how much longer the chosen response is. */
    mean_length_when_right: number;
    mean_length_when_wrong: number;
    /** Pairs: the accuracy if the chosen response is the longer one, and if it is the shorter. */
    accuracy_when_longer: number | null;
    accuracy_when_shorter: number | null;
    /** Pairs: the share of errors in which the model preferred the longer response. */
    errors_preferring_longer: number | null;
  };
  close_calls: { threshold: number; count: number; share: number; accuracy: number | null };
  low_confidence_errors: { below: number; count: number; share_of_errors: number };
  high_confidence_errors: { above: number; count: number; share_of_errors: number };
  margins: { all: Spread; right: Spread | null; wrong: Spread | null };
  by_source: Record<string, Rate>;
  /** Solutions and steps: accuracy by true label. Pairs have no label. */
  by_label: Record<string, Rate>;
  /** The mean of the accuracies by label. Always giving the more common label does not raise it. */
  balanced_accuracy: number | null;
  /** The worst errors first, repeated examples only once. */
  examples: (Decision & { confidence: number })[];
}

/** Error statistics of a reward model's decisions. */
export function errorAnalysis(decisions: readonly Decision[], options: { pairs: boolean }): ErrorAnalysis {
  const right = decisions.filter(({ margin }) => margin > 0);
  const wrong = decisions.filter(({ margin }) => !(margin > 0));
  const near = decisions.filter(({ margin }) => Math.abs(margin) < closeCall);
  const unsure = wrong.filter((decision) => confidence(decision) < lowConfidence);
  const sure = wrong.filter((decision) => confidence(decision) > highConfidence);
  const ofPairs = (rate: () => number | null) => (options.pairs ? rate() : null);
  const accuracyOf = (part: readonly Decision[]) =>
    part.length === 0 ? null : part.filter(({ margin }) => margin > 0).length / part.length;
  const lengths = (part: readonly Decision[]) => meanOf(part.map(({ length }) => length));
  const byLabel = options.pairs ? {} : ratesBy(decisions, ({ responses }) => responses[0]?.label);
  const ofLabels = Object.values(byLabel).map(({ accuracy }) => accuracy);
  return {
    decisions: decisions.length,
    errors: wrong.length,
    accuracy: right.length / Math.max(1, decisions.length),
    accuracy_interval: wilson(right.length, decisions.length),
    length_bias: {
      margin_length_correlation: correlation(
        decisions.map(({ margin }) => margin),
        decisions.map(({ length }) => length),
      ),
      mean_length_when_right: lengths(right),
      mean_length_when_wrong: lengths(wrong),
      accuracy_when_longer: ofPairs(() => accuracyOf(decisions.filter(({ length }) => length > 0))),
      accuracy_when_shorter: ofPairs(() => accuracyOf(decisions.filter(({ length }) => length < 0))),
      errors_preferring_longer: ofPairs(() =>
        wrong.length === 0 ? null : wrong.filter(({ length }) => length < 0).length / wrong.length,
      ),
    },
    close_calls: {
      threshold: closeCall,
      count: near.length,
      share: near.length / Math.max(1, decisions.length),
      accuracy: accuracyOf(near),
    },
    low_confidence_errors: {
      below: lowConfidence,
      count: unsure.length,
      share_of_errors: unsure.length / Math.max(1, wrong.length),
    },
    high_confidence_errors: {
      above: highConfidence,
      count: sure.length,
      share_of_errors: sure.length / Math.max(1, wrong.length),
    },
    margins: { all: spreadOf(decisions), right: spreadOrNull(right), wrong: spreadOrNull(wrong) },
    by_source: ratesBy(decisions, ({ source }) => source),
    by_label: byLabel,
    balanced_accuracy: ofLabels.length === 0 ? null : meanOf(ofLabels),
    examples: distinct(wrong)
      .sort((a, b) => a.margin - b.margin)
      .slice(0, shownErrors)
      .map((decision) => ({ ...decision, confidence: confidence(decision) })),
  };
}

/** The probability that the model gave to its own decision. */
const confidence = ({ margin }: Decision) => 1 / (1 + Math.exp(-Math.abs(margin)));

function distinct(decisions: readonly Decision[]): Decision[] {
  const key = ({ prompt, responses }: Decision) => JSON.stringify([prompt, responses.map(({ text }) => text)]);
  return [...new Map(decisions.map((decision) => [key(decision), decision])).values()];
}

/** The accuracy of each named group of decisions. Decisions without a name are left out. */
function ratesBy(
  decisions: readonly Decision[],
  nameOf: (decision: Decision) => string | undefined,
): Record<string, Rate> {
  const named = decisions.filter((decision) => nameOf(decision) !== undefined);
  const parts = [...Map.groupBy(named, (decision) => nameOf(decision) as string)];
  return Object.fromEntries(
    parts
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, part]) => {
        const right = part.filter(({ margin }) => margin > 0).length;
        return [name, { decisions: part.length, accuracy: right / part.length }];
      }),
  );
}

function spreadOf(decisions: readonly Decision[]): Spread {
  const sorted = decisions.map(({ margin }) => margin).sort((a, b) => a - b);
  const mean = meanOf(sorted);
  const squares = sorted.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const at = (q: number) => {
    const place = q * (sorted.length - 1);
    const below = sorted[Math.floor(place)] ?? 0;
    return below + ((sorted[Math.ceil(place)] ?? 0) - below) * (place - Math.floor(place));
  };
  const std = sorted.length > 1 ? Math.sqrt(squares / (sorted.length - 1)) : 0;
  return { mean, std, p10: at(0.1), median: at(0.5), p90: at(0.9) };
}

const spreadOrNull = (decisions: readonly Decision[]) => (decisions.length === 0 ? null : spreadOf(decisions));

const meanOf = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Pearson's correlation; 0 if either list is constant. */
export function correlation(x: readonly number[], y: readonly number[]): number {
  const [meanX, meanY] = [meanOf(x), meanOf(y)];
  let xy = 0;
  let xx = 0;
  let yy = 0;
  for (let i = 0; i < x.length; i++) {
    const [dx, dy] = [(x[i] as number) - meanX, (y[i] as number) - meanY];
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : 0;
}

/** Wilson's 95 % score interval of a share (1927). */
export function wilson(successes: number, count: number): [number, number] {
  if (count === 0) return [0, 1];
  const z = 1.959964;
  const share = successes / count;
  const centre = share + (z * z) / (2 * count);
  const half = z * Math.sqrt((share * (1 - share)) / count + (z * z) / (4 * count * count));
  const scale = 1 + (z * z) / count;
  return [Math.max(0, (centre - half) / scale), Math.min(1, (centre + half) / scale)];
}

/** How well a reward model's probabilities match what happened. */
export interface Calibration {
  /** Expected calibration error: Σ share of cases × |observed − stated| over bins (Guo et al. 2017). */
  ece: number;
  /** Mean squared error of the stated probabilities (Brier 1950). */
  brier: number;
  bins: { from: number; to: number; confidence: number; accuracy: number; count: number }[];
}

/**
 * Calibration over ten bins of equal width. Forecasts of pairs are never below one half, so their bins divide the upper
 * half.
 */
export function calibration(
  forecasts: readonly Forecast[],
  options: { from?: number; bins?: number } = {},
): Calibration {
  const { from = 0, bins: count = 10 } = options;
  const width = (1 - from) / count;
  const sums = Array.from({ length: count }, () => ({ stated: 0, happened: 0, count: 0 }));
  let squares = 0;
  for (const { probability, happened } of forecasts) {
    const bin = sums[Math.min(count - 1, Math.max(0, Math.floor((probability - from) / width)))];
    if (bin === undefined) continue;
    bin.stated += probability;
    bin.happened += Number(happened);
    bin.count++;
    squares += (probability - Number(happened)) ** 2;
  }
  const total = Math.max(1, forecasts.length);
  const bins = sums.map((bin, i) => ({
    from: from + i * width,
    to: from + (i + 1) * width,
    confidence: bin.count === 0 ? 0 : bin.stated / bin.count,
    accuracy: bin.count === 0 ? 0 : bin.happened / bin.count,
    count: bin.count,
  }));
  const ece = bins.reduce((sum, bin) => sum + (bin.count / total) * Math.abs(bin.accuracy - bin.confidence), 0);
  return { ece, brier: squares / total, bins };
}
