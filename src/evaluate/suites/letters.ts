/** Multiple choice by generation: the model writes a response, from which the letter of its answer is read. */
import { lettered, letters } from './choice.ts';
import type { AnswerFormat, ChoiceFormat, ChoiceQuestion } from './question.ts';

const told = /\b(?:answer|choice|option)(?:\s+is)?\s*:?\s*\**\(?([A-Z])\)?(?![A-Za-z])/gi;

/**
 * Turns a choice format into one with answers. Strict extraction wants "answer: B" or "the answer is (B)"; lenient
 * takes the last capital letter on its own.
 */
export function asLetters(format: ChoiceFormat): AnswerFormat {
  const source = lettered(format);
  return {
    name: format.name,
    kind: 'answer',
    columns: format.columns,
    matches: format.matches,
    stop: ['Question:', '\n\n'],
    read: (row) => {
      const question = format.read(row);
      const answer = letters[question.right] as string;
      // From here on the question is the prompt with its options.
      const text = source.prompt(question as ChoiceQuestion).replace(/\nAnswer:$/, '');
      return {
        kind: 'answer',
        text,
        answer,
        solution: answer,
        ...(question.subject !== undefined && { subject: question.subject }),
      };
    },
    prompt: ({ text }) => `${text}\nAnswer:`,
    target: ({ answer }) => answer,
    instruction: 'End with "Answer: " and the letter of the right choice.',
    strict: (response) =>
      [...response.matchAll(told)].at(-1)?.[1]?.toUpperCase() ?? /^\s*\(?([A-Z])\)?\s*[.:]?\s*$/.exec(response)?.[1],
    lenient: (response) =>
      [...response.matchAll(told)].at(-1)?.[1]?.toUpperCase() ??
      response.match(/(?<![A-Za-z])[A-Z](?![A-Za-z'])/g)?.at(-1),
    form: (answer) => answer.toUpperCase(),
  };
}
