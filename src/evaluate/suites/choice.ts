/**
 * Multiple choice: ARC, HellaSwag, MMLU, and any set with `question`, `choices` and the right choice. Prompts are those
 * of lm-evaluation-harness's tasks arc_easy, arc_challenge, hellaswag and mmlu.
 */
import type { Row } from '../../data/index.ts';
import { RowProblem } from '../../data/shapes/messages.ts';
import { isRow } from '../../data/sources/row.ts';
import { indexCell, parsed, subjectOf, textCell, textsCell } from './cells.ts';
import type { ChoiceFormat, ChoiceQuestion } from './question.ts';

/** The letters of choices, in order. */
export const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

const checked = (question: ChoiceQuestion): ChoiceQuestion => {
  const { choices, right } = question;
  if (choices.length < 2) throw new RowProblem(`a question needs two choices or more, this has ${choices.length}`);
  if (!(right >= 0 && right < choices.length))
    throw new RowProblem(`the right one of ${choices.length} choices cannot be number ${right + 1}`);
  return question;
};

/** Choices compared by their texts ("cloze"). */
const byText = {
  kind: 'choice',
  prompt: ({ text }: ChoiceQuestion) => `Question: ${text}\nAnswer:`,
  continuations: ({ choices }: ChoiceQuestion) => choices,
  target: ({ choices, right }: ChoiceQuestion) => choices[right] as string,
  stop: ['Question:'],
} as const;

/** ARC (Clark et al. 2018): choices have labels of their own. */
export const arc: ChoiceFormat = {
  ...byText,
  name: 'arc',
  columns: 'question, choices {text, label}, answerKey',
  matches: (row) => typeof row.question === 'string' && isRow(parsed(row.choices)) && 'answerKey' in row,
  read(row) {
    const choices = parsed(row.choices) as Row;
    const labels = textsCell(choices, 'label');
    const right = labels.indexOf(textCell(row, 'answerKey'));
    return checked({
      kind: 'choice',
      text: textCell(row, 'question'),
      choices: textsCell(choices, 'text'),
      right,
      ...subjectOf(row),
    });
  },
};

/** HellaSwag (Zellers et al. 2019): four endings of a scene. */
export const hellaswag: ChoiceFormat = {
  ...byText,
  name: 'hellaswag',
  columns: 'activity_label, ctx_a, ctx_b, endings, label',
  matches: (row) => typeof row.ctx_a === 'string' && 'endings' in row,
  read(row) {
    const second = textCell(row, 'ctx_b');
    const scene = `${textCell(row, 'ctx_a')} ${second.slice(0, 1).toUpperCase()}${second.slice(1).toLowerCase()}`;
    const text = withoutBrackets(`${textCell(row, 'activity_label')}: ${scene}`);
    const choices = textsCell(row, 'endings').map(withoutBrackets);
    return checked({ kind: 'choice', text, choices, right: indexCell(row, 'label') });
  },
  prompt: ({ text }) => text,
};

/** WikiHow's markers, such as [title] and [step], are artefacts of the data collection. */
const withoutBrackets = (text: string) =>
  text
    .trim()
    .replaceAll(' [title]', '. ')
    .replace(/\[.*?\]/g, '')
    .replaceAll('  ', ' ');

/** MMLU (Hendrycks et al. 2021): the prompt lists the choices, and their letters are compared. */
export const mmlu: ChoiceFormat = lettered({
  ...byText,
  name: 'mmlu',
  columns: 'question, choices, answer (a place from 0), subject',
  matches: (row) =>
    typeof row.question === 'string' && Array.isArray(parsed(row.choices)) && isPlace(row.answer) && 'subject' in row,
  read: (row) =>
    checked({
      kind: 'choice',
      text: textCell(row, 'question'),
      choices: textsCell(row, 'choices'),
      right: indexCell(row, 'answer'),
      ...subjectOf(row),
    }),
  description: ({ subject = 'general knowledge' }) =>
    `The following are multiple choice questions (with answers) about ${subject.replaceAll('_', ' ')}.`,
});

const isPlace = (value: unknown) =>
  (typeof value === 'number' || typeof value === 'string') && /^\d+$/.test(String(value));

/** Any other set: the right choice is given by its index from 0, its letter, or its text. */
export const choice: ChoiceFormat = {
  ...byText,
  name: 'choice',
  columns: 'question, choices (a list), answer (place from 0, letter or text)',
  matches: (row) =>
    ['question', 'prompt'].some((name) => typeof row[name] === 'string') && Array.isArray(parsed(row.choices)),
  read(row) {
    const choices = textsCell(row, 'choices');
    const column = ['answer', 'label', 'gold', 'answer_index'].find((name) => name in row) ?? 'answer';
    const given = textCell(row, column).trim();
    const right = isPlace(given)
      ? Number(given)
      : choices.includes(given)
        ? choices.indexOf(given)
        : letterPlace(given);
    const text = textCell(row, typeof row.question === 'string' ? 'question' : 'prompt');
    return checked({ kind: 'choice', text, choices, right, ...subjectOf(row) });
  },
};

const letterPlace = (given: string) => (given.length === 1 ? letters.indexOf(given.toUpperCase()) : -1);

/** The same questions with the choices in the prompt and their letters as answers. */
export function lettered(format: ChoiceFormat): ChoiceFormat {
  return {
    ...format,
    prompt: ({ text, choices }) =>
      `${text.trim()}\n${choices.map((each, i) => `${letters[i]}. ${each}`).join('\n')}\nAnswer:`,
    continuations: ({ choices }) => [...letters.slice(0, choices.length)],
    target: ({ right }) => letters[right] as string,
    texts: format.texts ?? format,
  };
}
