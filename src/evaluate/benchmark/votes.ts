/** pass@k and maj@k from one question's sampled answers. */
import { passAtK } from '../../algorithms/index.ts';

/** An answer in the form in which it is compared; undefined if none was found. */
export interface Vote {
  answer: string | undefined;
  right: boolean;
}

/** Powers of two up to k, and k itself. */
export function reportedKs(k: number): number[] {
  const ks = Array.from({ length: Math.floor(Math.log2(k)) + 1 }, (_, i) => 2 ** i);
  return ks.at(-1) === k ? ks : [...ks, k];
}

/**
 * Whether the most common answer of the first k samples is right, from 0 to 1: if several are equally common, the share
 * of right ones among them. Samples are independent, so the first k are as good as any. 0 without any answer.
 */
export function majorityAtK(votes: readonly Vote[], k: number): number {
  const cast = votes.slice(0, k).filter(({ answer }) => answer !== undefined);
  const counts = [...Map.groupBy(cast, ({ answer }) => answer).values()];
  const most = Math.max(0, ...counts.map(({ length }) => length));
  const winners = counts.filter(({ length }) => length === most);
  return most === 0 ? 0 : winners.filter(([vote]) => vote?.right).length / winners.length;
}

/** pass@k and maj@k by name, under a prefix: `strict_pass@4`. */
export function voteScores(prefix: string, votes: readonly Vote[], k: number): Record<string, number> {
  if (votes.length === 0) return {};
  const right = votes.filter((vote) => vote.right).length;
  const scores = reportedKs(k).flatMap((each) => [
    [`${prefix}_pass@${each}`, passAtK(votes.length, right, each)],
    ...(each === 1 ? [] : [[`${prefix}_maj@${each}`, majorityAtK(votes, each)]]),
  ]);
  return Object.fromEntries(scores);
}
