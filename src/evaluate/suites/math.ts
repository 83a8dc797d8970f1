/**
 * MATH's format (Hendrycks et al. 2021): problems in LaTeX whose solutions give the answer in `\boxed{}`. Strict
 * extraction takes the last box. Lenient takes the last formula or number if there is no box. Answers are compared as
 * normalised strings.
 */
import { subjectOf, textCell } from './cells.ts';
import { lastBoxed, lastFormula, latexForm } from './latex.ts';
import type { AnswerFormat } from './question.ts';

const boxed = (value: unknown) => typeof value === 'string' && lastBoxed(value) !== undefined;

export const math: AnswerFormat = {
  name: 'math',
  kind: 'answer',
  columns: 'problem, solution ("… \\boxed{7}") and, where there is one, answer',
  matches: (row) =>
    (typeof row.problem === 'string' || typeof row.question === 'string') && (boxed(row.solution) || boxed(row.answer)),
  read(row) {
    const text = textCell(row, typeof row.problem === 'string' ? 'problem' : 'question');
    const solution = textCell(row, typeof row.solution === 'string' ? 'solution' : 'answer');
    const given = typeof row.answer === 'string' ? row.answer : solution;
    const answer = lastBoxed(given) ?? (given === solution ? '' : given);
    return { kind: 'answer', text, answer, solution, ...subjectOf(row, 'type') };
  },
  prompt: ({ text }) => `Problem:\n${text}\n\nSolution:`,
  target: ({ solution }) => solution,
  stop: ['Problem:'],
  instruction: 'Reason step by step, and put the final answer into \\boxed{}.',
  strict: lastBoxed,
  lenient: (response) => lastBoxed(response) ?? lastFormula(response),
  form: latexForm,
};
