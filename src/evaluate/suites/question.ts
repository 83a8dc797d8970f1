/** What a question of a suite is, and what a format of suites knows: how rows are read, written as prompts and judged. */
import type { Row } from '../../data/index.ts';

interface Asked {
  /** What is asked, without labels around it. */
  text: string;
  /** The part of the set that it belongs to, where the set has parts. */
  subject?: string;
}

/** A question with a known final answer. */
export interface AnswerQuestion extends Asked {
  kind: 'answer';
  answer: string;
  /** The worked solution that a few-shot example shows; the answer where the set has none. */
  solution: string;
}

/** A question with several choices, one of them right. */
export interface ChoiceQuestion extends Asked {
  kind: 'choice';
  choices: readonly string[];
  /** The place of the right choice, from 0. */
  right: number;
}

/** A prompt with instructions that can be checked by code. */
export interface InstructionQuestion extends Asked {
  kind: 'instructions';
  instructions: readonly { id: string; settings: Readonly<Record<string, unknown>> }[];
}

/** A question of a suite. */
export type Question = AnswerQuestion | ChoiceQuestion | InstructionQuestion;

/** How the questions of one format are read and written; `Q` is the kind that its rows become. */
export interface Format<Q extends Question = Question> {
  name: string;
  kind: Q['kind'];
  /** Its columns, for messages. */
  columns: string;
  matches(row: Row): boolean;
  /** Throws RowProblem where the row cannot be read. */
  read(row: Row): Q;
  /** The text that the answer follows, in raw prompts. */
  prompt(question: Q): string;
  /** The user's message in chat prompts; the question's text unless given. */
  message?(question: Q): string;
  /** What a few-shot example shows as the answer. */
  target(question: Q): string;
  /** Written before the first example of a raw prompt, and as the system message of a chat. */
  description?(question: Q): string;
  /** Strings that end a raw response: the next question begins. */
  stop: readonly string[];
  /** Asks for the format's marker in chat prompts. */
  instruction?: string;
}

/** A format whose answers are found in responses and compared with the known one. */
export interface AnswerFormat extends Format<AnswerQuestion> {
  /** The answer behind the format's own marker; undefined where the response does not have it. */
  strict(response: string): string | undefined;
  /** The answer wherever it stands. What the known answer looks like may say what to look for, such as a number. */
  lenient(response: string, known: string): string | undefined;
  /** The form in which answers are compared: equal answers have equal forms. */
  form(answer: string): string;
}

/** A format whose choices are compared by their log-probs. */
export interface ChoiceFormat extends Format<ChoiceQuestion> {
  /** What each choice adds to the prompt: its text, or its letter. */
  continuations(question: ChoiceQuestion): readonly string[];
  /** Where letters are compared: the same format with the choices' texts. */
  texts?: ChoiceFormat;
}
