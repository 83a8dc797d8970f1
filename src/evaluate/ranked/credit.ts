/** Whether the scores prefer a right response, whatever the order in which the responses stand. */

/** A set of responses with their scores, and which of them are right. */
export interface Scored {
  scores: readonly number[];
  right: readonly boolean[];
}

const topOf = ({ scores }: Scored) => {
  const top = Math.max(...scores);
  return [...scores.keys()].filter((i) => scores[i] === top);
};

/** The share of right ones among the responses with the highest score (RewardBench 2): 1 or 0 but for ties. */
export function credit(item: Scored): number {
  const top = topOf(item);
  return top.filter((i) => item.right[i]).length / top.length;
}

/** Whether several responses share the highest score. */
export const isTied = (item: Scored): boolean => topOf(item).length > 1;

/** The same where the first, or the last, of equals is taken, as a program that sorts would. */
export function creditByOrder(item: Scored, taken: 'first' | 'last'): number {
  const top = topOf(item);
  return Number(item.right[(taken === 'first' ? top[0] : top.at(-1)) as number]);
}
