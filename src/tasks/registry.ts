/** All tasks by name. A new task is one `defineTask` and one line here. */
import { suggestion, UserError } from '../errors.ts';
import { basicArithmetic, chainSum, legCounting, products } from './arithmetic.ts';
import { dateArithmetic, timeArithmetic, weekdayArithmetic } from './calendar.ts';
import { countdown } from './countdown.ts';
import { baseConversion, countBits } from './digits.ts';
import { numberSequence, simpleEquations } from './equations.ts';
import { familyRelationships } from './family.ts';
import { fractionSimplification, gcdTask, lcmTask, primeFactorization } from './integers.ts';
import { caesarCipher, letterCounting, palindrome, spellBackward } from './letters.ts';
import { propositionalLogic, syllogism } from './logic.ts';
import { numberSorting, wordSorting } from './sorting.ts';
import { miniSudoku } from './sudoku.ts';
import type { Task } from './task.ts';

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

export const taskNames: readonly string[] = allTasks.map((each) => each.name);

/** The task of a name; an unknown name is answered with the nearest one. */
export function task(name: string): Task {
  const wanted = name.trim().replaceAll('-', '_').toLowerCase();
  const found = allTasks.find((each) => each.name === wanted);
  if (found === undefined) {
    throw new UserError(
      `Unknown task "${name}".${suggestion(name, taskNames)} \`attune tasks\` lists all ${taskNames.length}.`,
    );
  }
  return found;
}
