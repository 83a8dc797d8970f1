/**
 * The probability that at least one of k samples is right, estimated without bias from n samples of which c are right
 * (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", section 2.1).
 *
 *   pass@k = 1 − C(n − c, k)/C(n, k) = 1 − Π_{i=n−c+1..n} (1 − k/i)
 */
import { UserError } from '../errors.ts';

/** pass@k of one prompt with `n` samples, of which `correct` are right. */
export function passAtK(n: number, correct: number, k: number): number {
  if (!(k >= 1 && k <= n)) throw new UserError(`pass@${k} wants at least ${k} samples per prompt; there are ${n}.`);
  if (n - correct < k) return 1;
  let allWrong = 1;
  for (let i = n - correct + 1; i <= n; i++) allWrong *= 1 - k / i;
  return 1 - allWrong;
}

/** pass@k averaged over prompts; each prompt is the list of its samples' correctness. */
export function meanPassAtK(prompts: readonly (readonly boolean[])[], k: number): number {
  const each = prompts.map((samples) => passAtK(samples.length, samples.filter(Boolean).length, k));
  return each.reduce((sum, value) => sum + value, 0) / Math.max(1, each.length);
}
