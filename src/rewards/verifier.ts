/**
 * A task's own verifier as a scorer. It rewards the answer and, separately, the form of a response. Items of several
 * tasks may be mixed, because each carries its problem.
 *
 *     const scorer = taskVerifier({ format: 0.1 });
 *     await scorer.score([{ prompt: example.prompt, response, example }]);
 */
import { checkArguments, filledText, finite, flag, type Rule } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { type FormatOptions, formatReward, task } from '../tasks/index.ts';
import type { RewardItem, RewardParts, RewardScorer } from './scorer.ts';

/** Weights of `taskVerifier`, and the required form of a response. */
export interface VerifierOptions extends FormatOptions {
  name?: string;
  /** Weight of the answer; default 1. */
  answer?: number;
  /** Weight of the form (think and answer tags); default 0. */
  format?: number;
  /** No partial credit: only a fully right answer counts. */
  exact?: boolean;
}

const optionRules: Record<keyof VerifierOptions, Rule> = {
  ...{ name: filledText, answer: finite, format: finite, exact: flag, think: flag, opened: flag },
};

/** A scorer that checks responses to task problems with each task's own verifier. */
export function taskVerifier(options: VerifierOptions = {}): RewardScorer {
  checkArguments('taskVerifier', options, optionRules);
  checkNames('taskVerifier', options, Object.keys(optionRules));
  const { name = 'verifier', answer = 1, format = 0, exact = false, ...form } = options;
  const parts = async (items: readonly RewardItem[]): Promise<RewardParts> => {
    const answers = items.map((item, index) => {
      const score = verified(item, index);
      return exact ? Number(score === 1) : score;
    });
    if (format === 0) return { total: answers.map((score) => answer * score), parts: { answer: answers } };
    const forms = items.map(({ response }) => formatReward(response, form));
    const total = answers.map((score, i) => answer * score + format * (forms[i] as number));
    return { total, parts: { answer: answers, format: forms } };
  };
  return { name, parts, score: async (items) => (await parts(items)).total };
}

/** The verifier's score of a response, from 0 to 1. */
export function verified(item: RewardItem, index = 0): number {
  const { example } = item;
  if (example === undefined) {
    throw new UserError(
      `Sample ${index} belongs to no task, so no verifier can judge it. Rows of tasks carry task, seed and difficulty; a program passes the problem itself: { prompt, response, example }.`,
    );
  }
  return task(example.task).score(item.response, example);
}
