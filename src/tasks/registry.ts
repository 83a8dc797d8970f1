/** All tasks by name. A new task is one `defineTask` and one line here. */
import { checkArgument, text } from '../arguments.ts';
import { suggestion, UserError } from '../errors.ts';
import type { Task } from './parts/task.ts';
import { basicArithmetic, chainSum, legCounting, products } from './problems/arithmetic.ts';
import { dateArithmetic, timeArithmetic, weekdayArithmetic } from './problems/calendar.ts';
import { countdown } from './problems/countdown.ts';
import { baseConversion, countBits } from './problems/digits.ts';
import { numberSequence, simpleEquations } from './problems/equations.ts';
import { familyRelationships } from './problems/family.ts';
import { fractionSimplification, gcdTask, lcmTask, primeFactorization } from './problems/integers.ts';
import { caesarCipher, letterCounting, palindrome, spellBackward } from './problems/letters.ts';
import { propositionalLogic, syllogism } from './problems/logic.ts';
import { numberSorting, wordSorting } from './problems/sorting.ts';
import { miniSudoku } from './problems/sudoku.ts';

/** The tasks that come with attune. */
export const allTasks: readonly Task[] = [
  chainSum,
  products,
  basicArithmetic,
  legCounting,
  gcdTask,
  lcmTask,
  primeFactorization,
  fractionSimplification,
  countBits,
  baseConversion,
  simpleEquations,
  numberSequence,
  countdown,
  numberSorting,
  wordSorting,
  letterCounting,
  spellBackward,
  palindrome,
  caesarCipher,
  miniSudoku,
  propositionalLogic,
  syllogism,
  familyRelationships,
  timeArithmetic,
  weekdayArithmetic,
  dateArithmetic,
];

/** The names of the tasks that come with attune. */
export const taskNames: readonly string[] = allTasks.map((each) => each.name);

/** Finds a task by name; an unknown name is a UserError that suggests the nearest one. */
export function task(name: string): Task {
  checkArgument('A task', name, text);
  const wanted = name.trim().replaceAll('-', '_').toLowerCase();
  const found = allTasks.find((each) => each.name === wanted);
  if (found === undefined) {
    throw new UserError(
      `Unknown task "${name}".${suggestion(name, taskNames)} \`attune tasks\` lists all ${taskNames.length}.`,
    );
  }
  return found;
}
