/** Picking one of n responses: labels for a process reward model, scores of a reward model, and the ways to pick. */
import { loadRewardModel } from '../../rewards/index.ts';
import { type Example, type StepLabel, taggedAnswer, task } from '../../tasks/index.ts';

/** A response with the verifier's verdict. */
export interface JudgedResponse {
  problem: Example;
  text: string;
  correct: boolean;
}

/** Every line of a response with its label: right as long as it is what the known solution says at that place. */
export function labelledSteps({ problem, text, correct }: JudgedResponse): { text: string; label: StepLabel }[] {
  const known = task(problem.task)
    .solution(problem)
    .steps.map((step) => step.text);
  let wrong = false;
  let at = 0;
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const content = line.replaceAll(/<\/?(think|answer)>/g, '').trim();
      if (line.includes('<answer>')) return { text: line, label: correct ? 1 : -1 };
      if (content !== '') wrong ||= content !== known[at++];
      return { text: line, label: wrong ? -1 : 1 };
    });
}

/** A reward model's score of every response, group by group. */
export async function scoresOf(
  checkpoint: string,
  groups: readonly (readonly JudgedResponse[])[],
  options: { signal?: AbortSignal } = {},
): Promise<number[][]> {
  using scorer = await loadRewardModel(checkpoint);
  const items = groups.flat().map(({ problem, text }) => ({ prompt: problem.prompt, response: text }));
  const scores = await scorer.score(items, options);
  return groups.map((group) => scores.splice(0, group.length));
}

/** The response with the highest score; there may be more scores than responses. */
export function bestBy<T>(group: readonly T[], scores: readonly number[]): T {
  const seen = scores.slice(0, group.length);
  return group[seen.indexOf(Math.max(...seen))] as T;
}

/** The first response whose answer is the commonest one. */
export function majority<T extends JudgedResponse>(group: readonly T[]): T {
  const answers = group.map(({ text }) => taggedAnswer(text) ?? text);
  const votes = new Map<string, number>();
  for (const answer of answers) votes.set(answer, (votes.get(answer) ?? 0) + 1);
  const most = Math.max(...votes.values());
  return group[answers.findIndex((answer) => votes.get(answer) === most)] as T;
}
