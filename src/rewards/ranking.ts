/** A response's score and whether the response is right. */
export interface GradedScore {
  score: number;
  correct: boolean;
}

/**
 * The share of (right, wrong) pairs within a group in which the right response has the higher score; undefined without
 * such pairs.
 */
export function pairwiseAccuracy(groups: readonly (readonly GradedScore[])[]): number | undefined {
  let won = 0;
  let pairs = 0;
  for (const group of groups) {
    for (const right of group.filter(({ correct }) => correct)) {
      for (const wrong of group) {
        if (wrong.correct) continue;
        pairs++;
        won += right.score > wrong.score ? 1 : right.score === wrong.score ? 0.5 : 0;
      }
    }
  }
  return pairs === 0 ? undefined : won / pairs;
}

/** Area under the ROC curve: `pairwiseAccuracy` of all responses as one group, by ranks (Mann and Whitney 1947). */
export function areaUnderCurve(scores: readonly GradedScore[]): number | undefined {
  const sorted = [...scores].sort((a, b) => a.score - b.score);
  const positives = sorted.filter(({ correct }) => correct).length;
  const negatives = sorted.length - positives;
  if (positives === 0 || negatives === 0) return undefined;
  let rankSum = 0;
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end < sorted.length && sorted[end]?.score === sorted[i]?.score) end++;
    const rank = (i + 1 + end) / 2;
    for (let k = i; k < end; k++) if (sorted[k]?.correct) rankSum += rank;
    i = end;
  }
  return (rankSum - (positives * (positives + 1)) / 2) / (positives * negatives);
}

/**
 * The share of groups in which a right response has the highest score. Groups that are all right or all wrong do not
 * count.
 */
export function topAccuracy(groups: readonly (readonly GradedScore[])[]): number | undefined {
  const mixed = groups.filter((group) => new Set(group.map(({ correct }) => correct)).size === 2);
  if (mixed.length === 0) return undefined;
  return mixed.reduce((sum, group) => sum + bestIsRight(group), 0) / mixed.length;
}

/**
 * The expected share of problems solved by taking the best-scored of n responses, over all choices of n from a group:
 * the estimator of pass@k with the scorer instead of the oracle. Groups smaller than n do not count.
 */
export function bestOfN(groups: readonly (readonly GradedScore[])[], n: number): number | undefined {
  const large = groups.filter((group) => group.length >= n);
  if (large.length === 0) return undefined;
  let sum = 0;
  for (const group of large) {
    // The i-th best is picked if the other n − 1 are all worse: C(rest, n − 1) of C(all, n) choices.
    const sorted = [...group].sort((a, b) => b.score - a.score);
    const choices = binomial(group.length, n);
    sorted.forEach(({ correct }, i) => {
      if (correct) sum += binomial(group.length - i - 1, n - 1) / choices;
    });
  }
  return sum / large.length;
}

function bestIsRight(group: readonly GradedScore[]): number {
  const top = Math.max(...group.map(({ score }) => score));
  const best = group.filter(({ score }) => score === top);
  return best.filter(({ correct }) => correct).length / best.length;
}

function binomial(n: number, k: number): number {
  if (k < 0 || k > n) return 0;
  let value = 1;
  for (let i = 0; i < k; i++) value = (value * (n - i)) / (i + 1);
  return value;
}
