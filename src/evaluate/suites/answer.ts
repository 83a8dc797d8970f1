/**
 * Any set of questions with short answers. Strict extraction takes the content of `<answer>` tags, as attune's tasks
 * and models write it. Lenient extraction takes the last number if the answer is a number, otherwise the last line.
 */
import { numbersIn, readLine, readNumber, squeeze, taggedAnswer } from '../../tasks/parts/answer.ts';
import { subjectOf, textCell } from './cells.ts';
import type { AnswerFormat } from './question.ts';

const asks = ['question', 'prompt', 'problem', 'instruction', 'input'];
const tells = ['answer', 'final_answer', 'target', 'output'];
const named = (row: Record<string, unknown>, names: readonly string[]) =>
  names.find((name) => typeof row[name] === 'string' || typeof row[name] === 'number') ?? (names[0] as string);

const isNumber = (text: string) => /^[-+\d.,\s]+$/.test(text) && numbersIn(text).length === 1;

export const answer: AnswerFormat = {
  name: 'answer',
  kind: 'answer',
  columns: 'question (or prompt), answer',
  matches: (row) => named(row, asks) in row && named(row, tells) in row,
  read(row) {
    const known = textCell(row, named(row, tells));
    return {
      kind: 'answer',
      text: textCell(row, named(row, asks)),
      answer: known,
      solution: known,
      ...subjectOf(row, 'task'),
    };
  },
  prompt: ({ text }) => `Question: ${text}\nAnswer:`,
  target: ({ solution }) => `<answer>${solution}</answer>`,
  stop: ['Question:'],
  instruction: 'Write the answer as <answer>…</answer>.',
  strict: taggedAnswer,
  lenient: (response, known) => (isNumber(known) ? readNumber(response)?.value : readLine(response)),
  form: (text) => (isNumber(text) ? (numbersIn(text)[0] as string) : squeeze(text)),
};
