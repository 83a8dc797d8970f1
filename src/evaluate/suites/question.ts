/** The types of a suite's questions, and of formats, which read rows, write prompts and judge answers. */
import type { Row } from '../../data/index.ts';

interface Asked {
  /** The question itself, without labels around it. */
  text: string;
  /** The part of the set that it belongs to, if the set has parts. */
  subject?: string;
}

/** A question with a known final answer. */
export interface AnswerQuestion extends Asked {
  kind: 'answer';
  answer: string;
  /** The worked solution for few-shot examples. The answer, if the set has no solutions. */
  solution: string;
}

/** A question with several choices, one of them right. */
export interface ChoiceQuestion extends Asked {
  kind: 'choice';
  choices: readonly string[];
  /** The index of the right choice, from 0. */
  right: number;
}

/** A prompt with instructions that code can check. */
export interface InstructionQuestion extends Asked {
  kind: 'instructions';
  instructions: readonly { id: string; settings: Readonly<Record<string, unknown>> }[];
}

/** A question of a suite. */
export type Question = AnswerQuestion | ChoiceQuestion | InstructionQuestion;

/** How the questions of one format are read and written. `Q` is the type that its rows become. */
export interface Format<Q extends Question = Question> {
  name: string;
  kind: Q['kind'];
  /** Its columns, for messages. */
  columns: string;
  matches(row: Row): boolean;
  /** Throws a RowProblem if the row cannot be read. */
  read(row: Row): Q;
  /** In raw prompts: the text before the answer. */
  prompt(question: Q): string;
  /** The user's message in chat prompts. Default: the question's text. */
  message?(question: Q): string;
  /** The answer in a few-shot example. */
  target(question: Q): string;
  /** Written before the first example of a raw prompt, and used as the system message of a chat. */
  description?(question: Q): string;
  /** Strings that end a raw response because the next question begins. */
  stop: readonly string[];
  /** In chat prompts: asks for the format's answer marker. */
  instruction?: string;
}

/** A format whose answers are extracted from responses and compared with the known answer. */
export interface AnswerFormat extends Format<AnswerQuestion> {
  /** The answer after the format's own marker; undefined without the marker. */
  strict(response: string): string | undefined;
  /** The answer anywhere in the response. The known answer may show what to look for, such as a number. */
  lenient(response: string, known: string): string | undefined;
  /** The form in which answers are compared. Equal answers have equal forms. */
  form(answer: string): string;
}

/** A format whose choices are compared by log-prob. */
export interface ChoiceFormat extends Format<ChoiceQuestion> {
  /** The text that each choice adds to the prompt: the choice itself, or its letter. */
  continuations(question: ChoiceQuestion): readonly string[];
  /** If letters are compared: the same format with the choices' texts. */
  texts?: ChoiceFormat;
}
