/**
 * A task: an endless, seeded supply of problems of graded difficulty, each with an answer that a program can check.
 *
 *     const example = task('chain_sum').generate(7, 1);     // { prompt: 'What is 3 + 4? …', answer: '7', meta }
 *     task('chain_sum').score('<answer>7</answer>', example)  // 1
 *
 * A task file states three things with `defineTask`: how a problem is posed, how it is worked (which gives the answer
 * and the steps), and how a response is checked. All else follows from these.
 */
import { call, checkArguments, filledText, flag, type Rule, text, whole } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { respond, type Style } from './format.ts';
import { Pen, type Solution } from './solution.ts';

/** A problem with its answer. */
export interface Example<Meta = unknown> {
  task: string;
  seed: number;
  difficulty: number;
  prompt: string;
  answer: string;
  /** What the verifier needs to know of the problem; plain JSON. */
  meta: Meta;
}

/** An endless, seeded supply of problems with a verifier and worked solutions. */
export interface Task {
  readonly name: string;
  readonly summary: string;
  /** Difficulties run from 1 to this. */
  readonly levels: number;
  /** The same seed and difficulty always give the same example. */
  generate(seed: number, difficulty: number): Example;
  /** How right a response is, from 0 to 1; only a right answer gets 1. */
  score(response: string, example: Pick<Example, 'answer' | 'meta'>): number;
  /** A short worked solution, one line a step; the last line ends in the answer. */
  solve(example: Pick<Example, 'meta'>): string[];
  /** The same with labels. */
  solution(example: Pick<Example, 'meta'>): Solution;
  /**
   * A worked solution with one slip in it, whose answer the verifier rejects: of several tries the one whose length in
   * `style` is nearest to that of the right solution. Undefined in the rare case where no slip leads to a wrong answer.
   */
  wrongSolution(example: Pick<Example, 'answer' | 'meta'>, seed: number, style?: Style): Solution | undefined;
}

/** What `defineTask` needs: how a problem is posed, worked and checked. */
export interface TaskDefinition<Meta> {
  name: string;
  summary: string;
  levels?: number;
  pose(random: Random, difficulty: number): { prompt: string; meta: Meta };
  /** Writes the working with the pen and returns the answer. */
  work(meta: Meta, pen: Pen): string;
  check(response: string, answer: string, meta: Meta): number;
  /** Set where slips make the text longer as often as shorter, so that wrong solutions need not be chosen by length. */
  balancedSlips?: boolean;
}

const definitionRules: Record<keyof TaskDefinition<unknown>, Rule> = {
  ...{ name: filledText, summary: text, levels: whole(1), pose: call, work: call, check: call, balancedSlips: flag },
};

/** Makes a task of your own from how its problems are posed, worked and checked. */
export function defineTask<Meta>(definition: TaskDefinition<Meta>): Task {
  checkArguments('defineTask', definition, definitionRules, ['name', 'pose', 'work', 'check']);
  checkNames('defineTask', definition, Object.keys(definitionRules));
  const { name, summary, levels = 5 } = definition;
  // Only the definition knows the type of its meta; elsewhere it is opaque JSON.
  const metaOf = (example: Pick<Example, 'meta'>) => example.meta as Meta;

  const score: Task['score'] = (response, example) => definition.check(response, example.answer, metaOf(example));

  const solution: Task['solution'] = (example) => {
    const pen = new Pen();
    const answer = definition.work(metaOf(example), pen);
    return { steps: pen.steps, answer, score: 1 };
  };

  return {
    name,
    summary,
    levels,
    score,
    solution,
    generate(seed, difficulty) {
      if (!Number.isSafeInteger(seed))
        throw new UserError(`task ${name}: the seed must be a whole number, not ${seed}.`);
      if (!Number.isInteger(difficulty) || difficulty < 1 || difficulty > levels) {
        throw new UserError(`task ${name}: difficulty must be a whole number from 1 to ${levels}, not ${difficulty}.`);
      }
      const { prompt, meta } = definition.pose(new Random(name, seed, difficulty), difficulty);
      return { task: name, seed, difficulty, prompt, answer: definition.work(meta, new Pen()), meta };
    },
    solve: (example) => solution(example).steps.map((step) => step.text),
    wrongSolution(example, seed, style = 'think') {
      const counting = new Pen();
      const answer = definition.work(metaOf(example), counting);
      const wantedLength = respond({ steps: counting.steps, answer }, style).length;
      const random = new Random('wrong', name, seed);
      let best: Solution | undefined;
      let bestDistance = Number.POSITIVE_INFINITY;
      for (let attempt = 0; attempt < 24 && bestDistance > 0 && counting.places > 0; attempt++) {
        const pen = new Pen({ at: random.int(0, counting.places - 1), random });
        const wrongAnswer = definition.work(metaOf(example), pen);
        const grade = score(respond({ steps: [], answer: wrongAnswer }, 'answer'), example);
        if (!pen.slipped || grade >= 1) continue;
        const wrong = { steps: pen.steps, answer: wrongAnswer, score: grade };
        if (definition.balancedSlips) return wrong;
        const distance = Math.abs(respond(wrong, style).length - wantedLength);
        if (distance < bestDistance) {
          best = wrong;
          bestDistance = distance;
        }
      }
      return best;
    },
  };
}

/** The entry of a five-step scale for a difficulty. */
export function level<T>(difficulty: number, scale: readonly T[]): T {
  return scale[Math.min(difficulty, scale.length) - 1] as T;
}
