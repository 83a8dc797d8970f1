/**
 * The form of a response, apart from whether it is right:
 *
 *     <think>
 *     3+4=7
 *     7+2=9
 *     </think>
 *     <answer>9</answer>
 *
 * `formatReward` grades the form alone; `respond` writes a solution in it.
 */
import type { Solution } from './solution.ts';

/** A system message that asks for think and answer tags, for models that were not trained on them. */
export const formatInstruction =
  'Think step by step between <think> and </think>, then give only the final answer between <answer> and </answer>.';

/**
 * How a solution is written out: `think` with both tags, `steps` with plain lines before the answer tags, `answer`
 * with the answer tags alone.
 */
export const styles = ['think', 'steps', 'answer'] as const;
/** How a solution is written out; see `styles`. */
export type Style = (typeof styles)[number];

/** Writes a solution out as a response. */
export function respond(solution: Pick<Solution, 'steps' | 'answer'>, style: Style = 'think'): string {
  const answer = `<answer>${solution.answer}</answer>`;
  const lines = solution.steps.map((step) => step.text).join('\n');
  if (style === 'answer') return answer;
  return style === 'think' ? `<think>\n${lines}\n</think>\n${answer}` : `${lines}\n${answer}`;
}

/** The tags that a response should have. */
export interface FormatOptions {
  /** Whether thinking tags are wanted before the answer tags. */
  think?: boolean;
  /** Set where the chat template has already written `<think>`, so that the response begins inside the thinking. */
  opened?: boolean;
}

/**
 * 1 for thinking tags, then answer tags, and nothing outside them. Otherwise 0.75 × the share of the wanted tags that
 * appear exactly once, so that a model that does not know the form yet gets a reward for each tag it learns.
 */
export function formatReward(response: string, options: FormatOptions = {}): number {
  const { think = true, opened = false } = options;
  const text = opened ? `<think>${response}` : response;
  const tags = think ? ['<think>', '</think>', '<answer>', '</answer>'] : ['<answer>', '</answer>'];
  const present = tags.filter((tag) => text.split(tag).length === 2).length;
  if (present === tags.length && inOrder(text.trim(), tags)) return 1;
  const earned = opened && present > 0 ? present - 1 : present;
  return (0.75 * earned) / (opened ? tags.length - 1 : tags.length);
}

/** Tags follow each other, start and end the text, and nothing but space stands between `</think>` and `<answer>`. */
function inOrder(text: string, tags: string[]): boolean {
  const places = tags.map((tag) => text.indexOf(tag));
  if (places.some((place, i) => i > 0 && place < (places[i - 1] ?? 0))) return false;
  if (places[0] !== 0 || !text.endsWith('</answer>')) return false;
  const [, closeThink = '', openAnswer = ''] = tags.length === 4 ? tags : ['', '', ''];
  if (tags.length === 2) return true;
  const between = text.slice(text.indexOf(closeThink) + closeThink.length, text.indexOf(openAnswer));
  return between.trim() === '';
}
