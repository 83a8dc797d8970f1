/**
 * GSM8K's format (Cobbe et al. 2021): a solution in words that ends in `#### 72`. Extraction, strict and lenient, and
 * comparison are those of lm-evaluation-harness (`strict-match`, `flexible-extract`, `exact_match` of its task gsm8k).
 */
import { subjectOf, textCell } from './cells.ts';
import type { AnswerFormat } from './question.ts';

const marked = /#### (-?[0-9.,]+)/;
const numbers = /-?[$0-9.,]{2,}|-?[0-9]+/g;

export const gsm8k: AnswerFormat = {
  name: 'gsm8k',
  kind: 'answer',
  columns: 'question, answer ("… #### 72")',
  matches: (row) => typeof row.question === 'string' && typeof row.answer === 'string' && marked.test(row.answer),
  read(row) {
    const solution = textCell(row, 'answer');
    const answer = marked.exec(solution)?.[1] ?? solution;
    return { kind: 'answer', text: textCell(row, 'question'), answer, solution, ...subjectOf(row) };
  },
  prompt: ({ text }) => `Question: ${text}\nAnswer:`,
  target: ({ solution }) => solution,
  stop: ['Question:'],
  instruction: 'Reason step by step. End with a line that holds "#### " and the answer as a number.',
  strict: (response) => marked.exec(response)?.[1],
  lenient: (response) => response.match(numbers)?.at(-1),
  form: (answer) => answer.toLowerCase().replace(/[,$]/g, '').replace(/\.$/, ''),
};
