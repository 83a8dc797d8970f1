/**
 * The types of examples: one for each shape of training data, whatever the columns are called.
 *
 *     { prompt: [{ role: 'user', content: 'Hi' }], chosen: 'Hello!', rejected: 'Go away.' }
 *
 * Prompts are always message lists: a plain string is one user message, a transcript is split into its turns.
 */
import type { Message } from '../../text/chat/chat.ts';

export type { Message };

/** Two responses to one prompt. `margin` is how much better the chosen one was graded, if the set says so. */
export interface PreferencePair {
  prompt: Message[];
  chosen: string;
  rejected: string;
  margin?: number;
  source?: string;
}

/** One response and whether it is wanted (KTO). */
export interface UnpairedExample {
  prompt: Message[];
  completion: string;
  label: boolean;
  source?: string;
}

/** A prompt to sample from; `answer` is the final answer if known, `solution` the worked text behind it. */
export interface PromptExample {
  prompt: Message[];
  answer?: string;
  solution?: string;
  source?: string;
  /** The row's other columns, with `keepColumns`. */
  fields?: Record<string, unknown>;
}

/** A conversation to imitate: loss on the assistant's turns. */
export interface Conversation {
  messages: Message[];
  source?: string;
}

/** Plain text: loss on every token. */
export interface TextExample {
  text: string;
  source?: string;
}

/**
 * A solution known to be right or wrong. `group` is its question's number, shared by that question's other solutions.
 */
export interface GradedSolution {
  prompt: Message[];
  solution: string;
  correct: boolean;
  group: number;
  source?: string;
}

/** −1 wrong, 0 neutral, +1 right, as in PRM800K. */
export type StepLabel = -1 | 0 | 1;

/** A solution step by step. A step with label null is context: it is part of the text but carries no loss. */
export interface LabelledSteps {
  prompt: Message[];
  steps: { text: string; label: StepLabel | null }[];
  source?: string;
}

/** The type of an example, by shape. */
export interface ExampleOf {
  preference: PreferencePair;
  unpaired: UnpairedExample;
  prompts: PromptExample;
  messages: Conversation;
  text: TextExample;
  graded: GradedSolution;
  steps: LabelledSteps;
}

/** The name of a shape of training data. */
export type Shape = keyof ExampleOf;
/** An example of any shape. */
export type Example = ExampleOf[Shape];

/** The names of all shapes. */
export const shapes: readonly Shape[] = ['preference', 'unpaired', 'prompts', 'messages', 'text', 'graded', 'steps'];

/** The prompt of an example as one string. Examples with the same key are on the same side of a split. */
export function promptKey(shape: Shape, example: Example): string {
  if (shape === 'text') return (example as TextExample).text;
  if (shape === 'messages') {
    const { messages } = example as Conversation;
    const firstReply = messages.findIndex((message) => message.role === 'assistant');
    return keyOf(firstReply <= 0 ? messages : messages.slice(0, firstReply));
  }
  return keyOf((example as { prompt: Message[] }).prompt);
}

function keyOf(messages: Message[]): string {
  return messages.map((message) => `${message.role}\u0000${message.content}`).join('\u0001');
}
