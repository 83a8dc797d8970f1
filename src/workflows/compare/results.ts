/** The results of a comparison: the numbers of every method over its seeds, and the best method by each criterion. */
import { meanOf, stdOf } from '../../algorithms/index.ts';
import type { JudgedResponse, Judgement } from './judge.ts';

/** One run of one method. */
export interface MethodRun {
  method: string;
  seed: number;
  /** The trainer's metrics of each step. */
  history: { step: number; metrics: Record<string, number> }[];
  judgements: Judgement[];
  /** Seconds of training, including the sampling of pairs but not evaluation. */
  seconds: number;
  samples: number;
  steps: number;
  responses: JudgedResponse[];
}

/** A number over seeds. */
export interface Figure {
  mean: number;
  std: number;
}

export interface MethodResult {
  /** Variation in the last half of training. */
  stability: { judged_reward_std: Figure; loss_std: Figure; final_kl: Figure };
  convergence: { steps_to_90_percent: Figure; improvement: Figure };
  efficiency: { seconds: Figure; seconds_per_step: Figure; samples: Figure; improvement_per_minute: Figure };
  /** Metrics on the held-out prompts. */
  quality: Record<string, Figure>;
}

export interface ComparisonResults {
  methods: Record<string, MethodResult>;
  relative: {
    /** The winner among the methods that improved on the start; null if none improved or several tie. */
    winners: Record<'quality' | 'stability' | 'convergence' | 'efficiency', string | null>;
    /** Seconds relative to the fastest method. */
    time_ratios: Record<string, number>;
  };
  start: Record<string, number>;
}

const figure = (values: readonly number[]): Figure => ({ mean: meanOf(values), std: stdOf(values) });
/** The metric to compare: accuracy if there is a verifier, otherwise the reward. */
export const qualityName = (start: Judgement) => (start.metrics.accuracy === undefined ? 'reward' : 'accuracy');

export function comparisonResults(start: Judgement, runs: readonly MethodRun[]): ComparisonResults {
  const byMethod = Map.groupBy(runs, ({ method }) => method);
  const methods = Object.fromEntries(Array.from(byMethod, ([method, own]) => [method, methodResult(start, own)]));
  const improved = Object.entries(methods).filter(([, { convergence }]) => convergence.improvement.mean > 0);
  const best = (score: (result: MethodResult) => number) => {
    if (Object.keys(methods).length < 2) return null;
    const scores = improved.map(([name, result]) => ({ name, score: score(result) }));
    const highest = Math.max(...scores.map((each) => each.score));
    const leaders = scores.filter((each) => each.score === highest);
    return leaders.length === 1 ? (leaders[0]?.name ?? null) : null;
  };
  const fastest = Math.min(...Object.values(methods).map(({ efficiency }) => efficiency.seconds.mean));
  return {
    start: start.metrics,
    methods,
    relative: {
      winners: {
        quality: best(({ quality }) => (quality[qualityName(start)] as Figure).mean),
        stability: best(({ stability }) => -stability.judged_reward_std.mean),
        convergence: best(({ convergence }) => -convergence.steps_to_90_percent.mean),
        efficiency: best(({ efficiency }) => efficiency.improvement_per_minute.mean),
      },
      time_ratios: Object.fromEntries(
        Object.entries(methods).map(([name, { efficiency }]) => [name, efficiency.seconds.mean / fastest]),
      ),
    },
  };
}

function methodResult(start: Judgement, runs: readonly MethodRun[]): MethodResult {
  const name = qualityName(start);
  const over = (of: (run: MethodRun) => number) => figure(runs.map(of));
  const final = (run: MethodRun) => run.judgements.at(-1) as Judgement;
  const gain = (run: MethodRun) => (final(run).metrics[name] as number) - (start.metrics[name] as number);
  return {
    stability: {
      judged_reward_std: over(({ judgements }) =>
        stdOf(lastHalf(judgements).map(({ metrics }) => metrics.reward as number)),
      ),
      loss_std: over(({ history }) => stdOf(lastHalf(history).flatMap(({ metrics }) => metrics['train/loss'] ?? []))),
      final_kl: over((run) => final(run).kl),
    },
    convergence: { steps_to_90_percent: over((run) => stepsTo(run, name, 0.9)), improvement: over(gain) },
    efficiency: {
      seconds: over(({ seconds }) => seconds),
      seconds_per_step: over(({ seconds, steps }) => seconds / Math.max(1, steps)),
      samples: over(({ samples }) => samples),
      improvement_per_minute: over((run) => (60 * gain(run)) / run.seconds),
    },
    quality: Object.fromEntries(
      Object.keys(start.metrics).map((metric) => [metric, over((run) => final(run).metrics[metric] ?? Number.NaN)]),
    ),
  };
}

const lastHalf = <T>(items: readonly T[]) => items.slice(Math.floor(items.length / 2));

/** The first evaluated step that reaches this share of the whole improvement. All steps if there was no improvement. */
function stepsTo({ judgements, steps }: MethodRun, name: string, share: number): number {
  const value = ({ metrics }: Judgement) => metrics[name] as number;
  const [first, last] = [value(judgements[0] as Judgement), value(judgements.at(-1) as Judgement)];
  if (last <= first) return steps;
  return judgements.find((each) => value(each) >= first + share * (last - first))?.step ?? steps;
}
