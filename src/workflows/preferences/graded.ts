/** Rows of graded solutions by the policy, for `attune train reward --type outcome`. */
import { isRight } from '../../rewards/index.ts';
import { rewardItem } from '../../rollouts/rollout.ts';
import type { Message } from '../../text/index.ts';
import { asWritten, distinctResponses, type RowBatch, type RowContext, type RowMaker } from './rows.ts';

/** One row of the file. */
export interface GradedRow {
  prompt: string | readonly Message[];
  completion: string;
  correct: boolean;
}

export interface GradedSummary {
  kind: 'graded';
  solutions: number;
  right: number;
  /** Number of prompts with both right and wrong solutions. */
  mixed: number;
}

export function gradedRows({ config }: RowContext): RowMaker<GradedSummary> {
  const summary: GradedSummary = { kind: 'graded', solutions: 0, right: 0, mixed: 0 };
  return {
    async rows(batch: RowBatch) {
      return batch.prompts.map(({ messages }, place) => {
        const rows = distinctResponses(batch, place, config.samples).map(
          (rollout): GradedRow => ({
            prompt: asWritten(messages),
            completion: rollout.response,
            correct: isRight(rewardItem(rollout)) === true,
          }),
        );
        const right = rows.filter(({ correct }) => correct).length;
        summary.solutions += rows.length;
        summary.right += right;
        if (right > 0 && right < rows.length) summary.mixed++;
        return rows;
      });
    },
    summary: () => summary,
  };
}
