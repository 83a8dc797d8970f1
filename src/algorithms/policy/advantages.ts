/**
 * Computes a step's token advantages from its rewards, as the algorithm defines them. If the algorithm has the KL in
 * the reward, it is subtracted first. A response's advantage is repeated over its tokens.
 *
 *     const { perToken, perResponse, returns } = policyAdvantages(algorithm, options, { rewards, groups, lengths });
 */
import { AttuneError } from '../../errors.ts';
import { meanOf, responseAdvantages } from '../advantages.ts';
import { gae } from '../gae.ts';
import type { PolicyOptions } from './options.ts';
import { type PolicyAlgorithm, usesTeacherKl } from './policy.ts';

/** The input of `policyAdvantages`: the rewards of a whole step, and whatever else its algorithm needs. */
export interface AdvantageInput {
  /** One reward per response of the whole step. */
  rewards: ArrayLike<number>;
  /** The prompt of each response: any number that its responses share. */
  groups: ArrayLike<number>;
  /** Number of tokens of each response. */
  lengths: ArrayLike<number>;
  /** 0 or 1 per response, read by `max-rl`. Without it the rewards must be 0 or 1. */
  correct?: ArrayLike<number | boolean>;
  /** lpOld − lpRef per token, packed. Required if the KL is in the reward and klCoef is not 0. */
  k1?: ArrayLike<number>;
  /** V per token, packed. Required by algorithms with a value head. */
  values?: ArrayLike<number>;
  /** lpTeacher − lpOld per token, packed. Required by algorithms whose advantage is the teacher's. */
  teacher?: ArrayLike<number>;
}

/** A step's advantages per token and per response, and the returns if there is a value head. */
export interface PolicyAdvantages {
  /** Packed, one per response token. */
  perToken: Float64Array;
  /** For reports. With token-wise advantages, the mean over the response. */
  perResponse: Float64Array;
  /** Targets of the value loss, packed. */
  returns?: Float64Array;
}

/** Advantages of a whole step as the algorithm defines them. */
export function policyAdvantages(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  input: AdvantageInput,
): PolicyAdvantages {
  if (algorithm.advantage === 'teacher') return towardsTeacher(algorithm, options, input);
  const inReward = algorithm.klIn === 'reward' && options.klCoef !== 0;
  if (inReward && input.k1 === undefined)
    throw new AttuneError(`${algorithm.name} has the KL in the reward: its advantages need "k1".`);
  const k1 = inReward ? input.k1 : undefined;
  if (algorithm.advantage === 'gae') return tokenWise(options, { ...input, k1 });

  const signal =
    algorithm.advantage === 'max-rl' && input.correct !== undefined
      ? Float64Array.from(input.correct, Number)
      : input.rewards;
  const rewards = k1 === undefined ? signal : withKl(signal, input.lengths, k1, options.klCoef);
  const perResponse = responseAdvantages(algorithm.advantage, rewards, input.groups);
  return { perResponse, perToken: repeated(perResponse, input.lengths) };
}

/**
 * A_t = lpTeacher − lpOld. Under πold its mean is −KL(πold‖teacher), and its policy gradient is the gradient of that
 * (Agarwal et al. 2024). 0 if the KL itself is the loss.
 */
function towardsTeacher(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  { teacher, lengths }: AdvantageInput,
): PolicyAdvantages {
  if (usesTeacherKl(algorithm, options)) {
    const perResponse = Float64Array.from(lengths, () => 0);
    return { perResponse, perToken: repeated(perResponse, lengths) };
  }
  if (teacher === undefined) throw new AttuneError(`${algorithm.name} learns from a teacher: it needs "teacher".`);
  const perToken = Float64Array.from(teacher);
  return { perToken, perResponse: perSegment(perToken, lengths, meanOf) };
}

function tokenWise(options: PolicyOptions, input: AdvantageInput): PolicyAdvantages {
  const { values } = input;
  if (values === undefined) throw new AttuneError('Token-wise advantages need "values".');
  const { advantages, returns } = gae({ ...input, values }, options);
  const perResponse = perSegment(advantages, input.lengths, meanOf);
  return { perToken: advantages, perResponse, returns };
}

/** R − klCoef·Σ_t k1_t. */
function withKl(
  rewards: ArrayLike<number>,
  lengths: ArrayLike<number>,
  k1: ArrayLike<number>,
  klCoef: number,
): Float64Array {
  const sums = perSegment(Float64Array.from(k1), lengths, (part) => part.reduce((sum, value) => sum + value, 0));
  return sums.map((kl, i) => (rewards[i] as number) - klCoef * kl);
}

function perSegment(
  values: Float64Array,
  lengths: ArrayLike<number>,
  summary: (part: Float64Array) => number,
): Float64Array {
  let start = 0;
  return Float64Array.from(lengths, (length) => {
    const part = values.subarray(start, start + length);
    start += length;
    return summary(part);
  });
}

function repeated(perResponse: Float64Array, lengths: ArrayLike<number>): Float64Array {
  const out = new Float64Array(Array.from(lengths).reduce((total, length) => total + length, 0));
  let start = 0;
  perResponse.forEach((value, i) => {
    const end = start + (lengths[i] as number);
    out.fill(value, start, end);
    start = end;
  });
  return out;
}
