/**
 * Shapes scores into rewards before advantages are computed: normalisation, then penalties for responses that were cut
 * off or are too long.
 */
import { meanOf, overlongPenalty, stdOf, withEosPenalty } from '../algorithms/index.ts';
import type { Rollout } from './rollout.ts';

export interface ShapingOptions {
  normalization: 'none' | 'batch' | 'running';
  eosPenalty: number;
  /** Share of maxNewTokens over which the overlong penalty falls to −1; 0 = none. */
  overlongRamp: number;
  maxNewTokens: number;
}

/** Count, mean and sum of squared differences of all scores so far (Welford 1962). */
interface Moments {
  count: number;
  mean: number;
  squares: number;
}

export class RewardShaper {
  readonly #options: ShapingOptions;
  #moments: Moments = { count: 0, mean: 0, squares: 0 };

  constructor(options: ShapingOptions) {
    this.#options = options;
  }

  /** Sets `reward` from `score`. */
  shape(rollouts: readonly Rollout[]): void {
    const { eosPenalty, overlongRamp, maxNewTokens } = this.#options;
    const scores = this.#normalised(rollouts.map(({ score }) => score));
    for (const [i, rollout] of rollouts.entries()) {
      const ended = withEosPenalty(scores[i] as number, rollout.ended, eosPenalty);
      const length = takenRoom(rollout);
      const ramp = overlongRamp * maxNewTokens;
      rollout.reward = ended + (ramp > 0 ? overlongPenalty(length, maxNewTokens, ramp) : 0);
    }
  }

  state(): unknown {
    return { ...this.#moments };
  }
  restore(state: unknown): void {
    this.#moments = { ...(state as Moments) };
  }

  #normalised(scores: number[]): number[] {
    const { normalization } = this.#options;
    if (normalization === 'none') return scores;
    if (normalization === 'batch') return toUnit(scores, meanOf(scores), stdOf(scores));
    for (const score of scores) {
      const { count, mean } = this.#moments;
      const next = mean + (score - mean) / (count + 1);
      this.#moments = {
        count: count + 1,
        mean: next,
        squares: this.#moments.squares + (score - mean) * (score - next),
      };
    }
    const { count, mean, squares } = this.#moments;
    return toUnit(scores, mean, count > 1 ? Math.sqrt(squares / (count - 1)) : 0);
  }
}

/**
 * The tokens that count towards maxNewTokens: in an episode including observations, for an agent those of its longest
 * conversation.
 */
function takenRoom({ ids, promptLength, spans, starts, responseIds }: Rollout): number {
  if (spans === undefined) return responseIds.length;
  if (starts === undefined) return ids.length - promptLength;
  const places = Array.from(spans);
  const lengths = Array.from(starts, (start, i) => {
    const end = starts[i + 1] ?? ids.length;
    const first = places.find((place, at) => at % 2 === 0 && place >= start && place < end) ?? end;
    return end - first;
  });
  return Math.max(...lengths);
}

const toUnit = (scores: number[], mean: number, std: number) => scores.map((score) => (score - mean) / (std + 1e-8));
