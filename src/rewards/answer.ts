/**
 * A verifier for datasets with a known final answer (GSM8K). It compares the response's last number, or its last line,
 * with the answer.
 *
 *     await answerVerifier().score([{ prompt, response: 'So it is 42.', fields: { answer: '42' } }]);      // [1]
 */
import { UserError } from '../errors.ts';
import { numbersIn, scoreLine, scoreNumber } from '../tasks/parts/answer.ts';
import type { RewardItem, RewardScorer } from './scorer.ts';
import { verified } from './verifier.ts';

/** A scorer that compares a response's final answer with its item's `fields.answer`. */
export function answerVerifier(name = 'answer'): RewardScorer {
  return {
    name,
    score: async (items) =>
      items.map((item, index) => {
        const { fields } = item;
        if (typeof fields?.answer !== 'string')
          throw new UserError(`Sample ${index} has no known answer, so it cannot be verified.`);
        return agreement(item.response, fields.answer);
      }),
  };
}

/** 1 for the same number or words, 0.5 if the answer tags hold several numbers and the last is right, 0 otherwise. */
export function agreement(response: string, answer: string): number {
  const isNumber = numbersIn(answer).length === 1 && /^[-+\d.,\s]+$/.test(answer);
  return isNumber ? scoreNumber(response, answer) : scoreLine(response, answer);
}

/** Whether a response is right, by its task's verifier or its known answer; undefined without either. */
export function isRight(item: RewardItem): boolean | undefined {
  if (item.example !== undefined) return verified(item) === 1;
  return typeof item.fields?.answer === 'string' ? agreement(item.response, item.fields.answer) === 1 : undefined;
}
