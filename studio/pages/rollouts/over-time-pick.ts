/** Which of a step's responses to a prompt are shown over time. */
import type { PromptAnswer } from '../../../src/studio/api.ts';

export type Pick = 'best' | 'first' | 'all';

export function picked(rows: readonly PromptAnswer[], pick: Pick): PromptAnswer[] {
  if (pick === 'all') return [...rows];
  const bySteps = Map.groupBy(rows, ({ step }) => step);
  const worth = ({ reward }: PromptAnswer) => reward ?? Number.NEGATIVE_INFINITY;
  return [...bySteps.values()].map((same) =>
    same.reduce((best, row) => (pick === 'best' && worth(row) > worth(best) ? row : best)),
  );
}
