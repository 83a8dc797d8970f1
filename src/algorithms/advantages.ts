/**
 * Advantages of whole responses, computed on the host in doubles (R = one reward per response, a group = one prompt's
 * responses).
 *
 * | none          | R                                                                              |
 * | batch-mean    | R − mean over the step (Williams 1992)                                         |
 * | leave-one-out | R_i − mean_{j≠i} R_j = K/(K−1)·(R_i − mean) (Ahmadian et al. 2024)             |
 * | group-z       | (R − mean)/(std + 1e-8), unbiased std (Shao et al. 2024)                       |
 * | group-centred | R − mean (Liu et al. 2025)                                                     |
 * | max-rl        | (b − b̄)/b̄ for binary b, 0 where b̄ = 0                                         |
 * | one           | 1: the log-likelihood of the responses that are kept (Dong et al. 2023)        |
 *
 * Except in `none` and `one`, equal rewards give advantages of exactly 0. Token-wise advantages are in gae.ts (`gae`)
 * and policy/advantages.ts (`teacher`).
 */
import { suggestion, UserError } from '../errors.ts';

/** The names of the advantages. */
export const responseAdvantageNames = [
  'none',
  'batch-mean',
  'leave-one-out',
  'group-z',
  'group-centred',
  'max-rl',
  'one',
] as const;

/** How a response's advantage follows from the rewards; src/algorithms/advantages.ts gives the formulas. */
export type ResponseAdvantage = (typeof responseAdvantageNames)[number];

/** One advantage per response. `groups[i]` is any number that all responses to one prompt share. */
export function responseAdvantages(
  kind: ResponseAdvantage,
  rewards: ArrayLike<number>,
  groups: ArrayLike<number>,
): Float64Array {
  if (!responseAdvantageNames.includes(kind))
    throw new UserError(
      `There is no advantage "${kind}".${suggestion(kind, responseAdvantageNames)} Known: ${responseAdvantageNames.join(', ')}.`,
    );
  if (groups.length !== rewards.length)
    throw new UserError(`There are ${rewards.length} rewards and ${groups.length} groups: a response has one of each.`);
  const out = Float64Array.from(rewards);
  if (kind === 'none') return out;
  if (kind === 'one') return out.fill(1);
  const members = kind === 'batch-mean' ? [Array.from(out.keys())] : membersOf(groups);
  for (const group of members) {
    const advantages = ofGroup[kind](group.map((i) => out[i] as number));
    group.forEach((i, k) => {
      out[i] = advantages[k] as number;
    });
  }
  return out;
}

const ofGroup: Record<Exclude<ResponseAdvantage, 'none' | 'one'>, (rewards: readonly number[]) => number[]> = {
  'batch-mean': centred,
  'group-centred': centred,
  'leave-one-out': (rewards) => {
    const K = rewards.length;
    if (K < 2)
      throw new UserError(
        'leave-one-out compares a response with the others to its prompt: it wants a group size of 2 or more.',
      );
    return centred(rewards).map((value) => (K / (K - 1)) * value);
  },
  'group-z': standardised,
  'max-rl': (rewards) => {
    const wrong = rewards.find((reward) => reward !== 0 && reward !== 1);
    if (wrong !== undefined)
      throw new UserError(`max-rl is defined for rewards of 0 and 1 (wrong, right); it was given ${wrong}.`);
    const mean = meanOf(rewards);
    return mean === 0 ? rewards.map(() => 0) : centred(rewards).map((value) => value / mean);
  },
};

/** (x − mean)/(std + 1e-8). Exactly 0 if all values are equal, and for a single value. */
export function standardised(values: readonly number[]): number[] {
  const std = stdOf(values);
  return centred(values).map((value) => value / (std + 1e-8));
}

function centred(values: readonly number[]): number[] {
  const mean = meanOf(values);
  return values.map((value) => value - mean);
}

/**
 * The arithmetic mean; 0 for an empty list. It sums differences from the first value, so that the mean of equal numbers
 * is exactly that number.
 */
export function meanOf(values: ArrayLike<number>): number {
  const first = values[0] ?? 0;
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += (values[i] as number) - first;
  return first + sum / Math.max(1, values.length);
}

/** The unbiased standard deviation; 0 for fewer than two values. */
export function stdOf(values: ArrayLike<number>): number {
  if (values.length < 2) return 0;
  const mean = meanOf(values);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += ((values[i] as number) - mean) ** 2;
  return Math.sqrt(sum / (values.length - 1));
}

/** The indices of each group's members, groups in order of appearance. */
export function membersOf(groups: ArrayLike<number>): number[][] {
  const members = new Map<number, number[]>();
  for (let i = 0; i < groups.length; i++) {
    const id = groups[i] as number;
    const list = members.get(id);
    if (list === undefined) members.set(id, [i]);
    else list.push(i);
  }
  return [...members.values()];
}

/** The share of groups whose rewards are all equal, which give no gradient. */
export function zeroSpreadShare(rewards: ArrayLike<number>, groups: ArrayLike<number>): number {
  const all = membersOf(groups);
  const flat = all.filter((group) => group.every((i) => rewards[i] === rewards[group[0] as number]));
  return all.length === 0 ? 0 : flat.length / all.length;
}
