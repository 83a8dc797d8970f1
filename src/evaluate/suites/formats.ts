/** All formats of question sets, and the detection of a row's format. */
import type { Row } from '../../data/index.ts';
import { suggestion, UserError } from '../../errors.ts';
import { answer } from './answer.ts';
import { arc, choice, hellaswag, mmlu } from './choice.ts';
import { gsm8k } from './gsm8k.ts';
import { ifeval } from './ifeval.ts';
import { math } from './math.ts';
import type { AnswerFormat, ChoiceFormat, Format, InstructionQuestion } from './question.ts';

/** A format of any kind. */
export type AnyFormat = AnswerFormat | ChoiceFormat | Format<InstructionQuestion>;

/** From the most specific to the most general. The first that matches a row is used. */
export const formats: readonly AnyFormat[] = [ifeval, hellaswag, arc, mmlu, choice, gsm8k, math, answer];

/** The names of the formats. */
export const formatNames = formats.map(({ name }) => name) as [string, ...string[]];

export function formatNamed(name: string): AnyFormat {
  const found = formats.find((format) => format.name === name);
  if (found !== undefined) return found;
  throw new UserError(
    `--format ${name}: there is no such format.${suggestion(name, formatNames)} There are: ${formatNames.join(', ')}.`,
  );
}

/** The format of a set with rows like this one. */
export function formatOf(row: Row, name: string): AnyFormat {
  const found = formats.find((format) => format.matches(row));
  if (found !== undefined) return found;
  const known = formats.map((format) => `  ${format.name}: ${format.columns}`).join('\n');
  throw new UserError(
    `${name}: the columns ${Object.keys(row).join(', ')} are of no known question format. Known are:\n${known}\nName one with --format.`,
  );
}
