/**
 * Procedural tasks with verifiable answers, in the manner of reasoning_gym: seeded, endless, graded in difficulty.
 *
 *     import { mixture, task } from 'attune/tasks';
 *
 *     const example = task('gcd').generate(1, 2);
 *     task('gcd').score(response, example);            // 0 to 1
 *     task('gcd').solve(example);                       // worked steps
 */

export type { Random } from '../random.ts';
export {
  type ChatRow,
  type CorpusKind,
  type CorpusOptions,
  chatRows,
  corpusKinds,
  corpusRows,
  type GradedRow,
  gradedRows,
  type LabelledStepsRow,
  labelledStepsRows,
  type PreferenceRow,
  preferenceRows,
  type Source,
} from './corpus.ts';
export {
  type DrawOptions,
  type Mixture,
  type MixturePart,
  mixture,
  type Part,
  partOf,
  parts,
  recipeText,
  type TaskRecipe,
} from './mixture.ts';
export { numbersIn, type ReadNumber, readLine, readNumber, taggedAnswer } from './parts/answer.ts';
export { type FormatOptions, formatInstruction, formatReward, respond, type Style, styles } from './parts/format.ts';
export type { Pen, Slip, Solution, Step, StepLabel } from './parts/solution.ts';
export { defineTask, type Example, type Task, type TaskDefinition } from './parts/task.ts';
export { allTasks, task, taskNames, useTask } from './registry.ts';
