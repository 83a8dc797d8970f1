/** How evaluations choose the best model: the metric, its direction, and whether the metric exists. */
import { suggestion, UserError } from '../../errors.ts';
import { kebabCase } from '../../runs/index.ts';
import type { LoopState } from './state.ts';
import type { BestOptions } from './task.ts';

/** The metrics of a trainer's evaluations. */
export interface Judged {
  /** The default metric for the best model. */
  metric: string;
  /** The metrics' names without prefix, or patterns where names depend on the data. */
  names: readonly (string | RegExp)[];
  /** Keeps a best model even without an option that asks for one. */
  always?: boolean;
}

export interface BestConfig {
  metricForBestModel?: string;
  greaterIsBetter?: boolean;
  earlyStoppingPatience?: number;
  loadBestModelAtEnd: boolean;
}

/** transformers writes `eval_loss`, attune `eval/loss`. A bare `loss` also means the evaluation's. */
export function evalName(metric: string): string {
  const plain = metric.replace(/^eval[_/]/, '');
  return `eval/${plain}`;
}

/** Judged by name: lower is better for losses, perplexities, errors and KLs, higher for the rest. */
export const isBetterWhenGreater = (metric: string): boolean =>
  !/(^|[/_])(loss|nll|perplexity|ppl|error|kl)($|_)/.test(metric);

/** undefined if no option asks for a best model. */
export function bestOptions(config: BestConfig, judged: Judged): BestOptions | undefined {
  const { metricForBestModel: named, earlyStoppingPatience: patience, loadBestModelAtEnd: loadAtEnd } = config;
  if (named === undefined && patience === undefined && !loadAtEnd && !judged.always) return undefined;
  const metric = evalName(named ?? judged.metric);
  checkMetric(metric, judged);
  return { metric, greaterIsBetter: config.greaterIsBetter ?? isBetterWhenGreater(metric), patience, loadAtEnd };
}

function checkMetric(metric: string, { names }: Judged): void {
  const plain = metric.replace(/^eval\//, '');
  if (names.some((name) => (typeof name === 'string' ? name === plain : name.test(plain)))) return;
  const known = names.filter((name): name is string => typeof name === 'string');
  throw unknownMetric(metric, known);
}

/**
 * The error for a metric that the evaluation does not have. Also used after the first evaluation, when all names are
 * known.
 */
export function unknownMetric(metric: string, names: readonly string[]): UserError {
  const known = names.map(evalName);
  return new UserError(
    `--metric-for-best-model ${metric}: evaluation does not give it.${suggestion(metric, known)} It gives: ${known.join(', ')}.`,
  );
}

/** Whether an evaluation is the best so far. Records it in the state, or counts it as one without improvement. */
export function noteBest(
  state: Pick<LoopState, 'step' | 'best' | 'sinceBest'>,
  { metric, greaterIsBetter }: Pick<BestOptions, 'metric' | 'greaterIsBetter'>,
  metrics: Readonly<Record<string, number>>,
): boolean {
  const value = metrics[metric];
  if (value === undefined) {
    const names = Object.keys(metrics).filter((name) => name.startsWith('eval/'));
    throw unknownMetric(metric, names);
  }
  const before = state.best?.value;
  const isBetter =
    Number.isFinite(value) && (before === undefined || (greaterIsBetter ? value > before : value < before));
  state.sinceBest = isBetter ? 0 : state.sinceBest + 1;
  if (isBetter) state.best = { metric, value, step: state.step };
  return isBetter;
}

/** Refuses evaluation options if nothing is held out, for example because the dataset is too small. */
export function checkHeldOut(config: BestConfig, evaluates: boolean, sources: Record<string, string>): void {
  if (evaluates) return;
  const asked = (['earlyStoppingPatience', 'loadBestModelAtEnd', 'metricForBestModel'] as const).find(
    (name) => Boolean(config[name]) && (sources[name] ?? 'default') !== 'default',
  );
  if (asked === undefined) return;
  throw new UserError(
    `--${kebabCase(asked)} is decided by evaluations, and there is nothing held out to evaluate on: the set is too small, or none of it was set aside.`,
  );
}
