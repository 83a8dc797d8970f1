/** All tasks by name. A new task is one `defineTask` and one line here; a program hands its own over with `useTask`. */
import { call, checkArgument, checkArguments, text, whole } from '../arguments.ts';
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

/** Tasks of a program's own, in this process. */
const given = new Map<string, Task>();

const spelt = (name: string) => name.trim().replaceAll('-', '_').toLowerCase();

/**
 * Registers a task of your own for this process and returns its name, by which mixtures and configs then know it.
 * `trainPolicy({ task: mine })` and `mixture(mine)` do so themselves.
 */
export function useTask(own: Task): string {
  checkArguments('A task', own, { name: text, levels: whole(1), generate: call, score: call }, taskParts);
  const name = spelt(own.name);
  if (!/^\w+$/.test(name) || name === 'all')
    throw new UserError(
      `"${own.name}" cannot be a task's name: letters, digits and _ make one, and "all" means every task.`,
    );
  const known = allTasks.find((each) => each.name === name);
  if (known !== undefined && known !== own)
    throw new UserError(`"${own.name}" is the name of one of attune's own tasks: give yours another.`);
  if (known === undefined) given.set(name, own);
  return name;
}

const taskParts = ['name', 'levels', 'generate', 'score'];

/** Finds a task by name; an unknown name is a UserError that suggests the nearest one. */
export function task(name: string): Task {
  checkArgument('A task', name, text);
  const wanted = spelt(name);
  const found = allTasks.find((each) => each.name === wanted) ?? given.get(wanted);
  if (found === undefined) {
    throw new UserError(
      `Unknown task "${name}".${suggestion(name, [...taskNames, ...given.keys()])} \`attune tasks\` lists all ${taskNames.length}. A task of your own is known only to a program that hands over its object: task: mine, also to go on with a run.`,
    );
  }
  return found;
}
