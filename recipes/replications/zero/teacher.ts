/** A teacher with habits: mostly blurts out an answer, sometimes works it out, sometimes checks the work and does it again. */
import { Random } from '../../../src/random.ts';
import { type Example, mixture, respond, type Solution, task } from '../../../src/tasks/index.ts';

/** Shares of responses that work the problem out, and that work it out and check. The rest blurt out an answer. */
export interface Habits {
  think: number;
  check: number;
  /** How often what is worked out is wrong; 0.4 when left out. */
  carefulSlips?: number;
  /** How often what is blurted out is wrong; always when left out, as with problems that nobody answers at a glance. */
  hastySlips?: number;
}

export function teacherRows(options: { tasks: string; seed: number; count: number; habits: Habits }) {
  const { tasks, seed, count, habits } = options;
  const drawn = mixture(tasks);
  const random = new Random('teacher', seed);
  return Array.from({ length: count }, (_, i) => {
    const problem = drawn.example(seed, i, { part: 'train' });
    const messages = [
      { role: 'user', content: problem.prompt },
      { role: 'assistant', content: written(problem, habits, random) },
    ];
    return { messages };
  });
}

function written(
  problem: Example,
  { think, check, carefulSlips = 0.4, hastySlips = 1 }: Habits,
  random: Random,
): string {
  const kind = random.float();
  if (kind >= think + check) return respond(attempt(problem, hastySlips, random), 'answer');
  const first = attempt(problem, carefulSlips, random);
  if (kind < think) return respond(first);
  const right = first.score === 1;
  const again = task(problem.task).solution(problem);
  const lines = [
    ...first.steps.map(({ text }) => text),
    `check: ${right ? 'right' : 'wrong'}`,
    ...(right ? [] : again.steps.map(({ text }) => text)),
  ];
  return `<think>\n${lines.join('\n')}\n</think>\n<answer>${again.answer}</answer>`;
}

function attempt(problem: Example, slips: number, random: Random): Solution {
  const own = task(problem.task);
  const wrong = random.chance(slips) ? own.wrongSolution(problem, random.seed()) : undefined;
  return wrong ?? own.solution(problem);
}
