/**
 * Converts one shape to another if everything it needs is there: pairs contain prompts, good responses contain
 * conversations.
 */
import { unitHash } from '../../random.ts';
import type {
  Conversation,
  Example,
  GradedSolution,
  Message,
  PreferencePair,
  PromptExample,
  Shape,
  UnpairedExample,
} from './shapes.ts';

type Conversion = (example: never) => Example[];

const conversation = (prompt: Message[], content: string): Conversation => ({
  messages: [...prompt, { role: 'assistant', content }],
});

/** Solutions of one problem may be far apart in a file, so the problem's number is a hash of the prompt. */
export function promptNumber(prompt: Message[]): number {
  return Math.floor(unitHash(JSON.stringify(prompt), 0) * 2 ** 31);
}

const conversions: Partial<Record<Shape, Partial<Record<Shape, Conversion>>>> = {
  preference: {
    unpaired: ({ prompt, chosen, rejected }: PreferencePair) => [
      { prompt, completion: chosen, label: true },
      { prompt, completion: rejected, label: false },
    ],
    messages: ({ prompt, chosen }: PreferencePair) => [conversation(prompt, chosen)],
    prompts: ({ prompt }: PreferencePair) => [{ prompt }],
  },
  unpaired: {
    graded: ({ prompt, completion, label }: UnpairedExample) => [
      { prompt, solution: completion, correct: label, group: promptNumber(prompt) },
    ],
    messages: ({ prompt, completion, label }: UnpairedExample) => (label ? [conversation(prompt, completion)] : []),
    prompts: ({ prompt }: UnpairedExample) => [{ prompt }],
  },
  messages: {
    prompts: ({ messages }: Conversation) => {
      const last = messages.findLastIndex((message) => message.role === 'assistant');
      return last > 0 ? [{ prompt: messages.slice(0, last), solution: messages[last]?.content } as PromptExample] : [];
    },
  },
  graded: {
    unpaired: ({ prompt, solution, correct }: GradedSolution) => [{ prompt, completion: solution, label: correct }],
    messages: ({ prompt, solution, correct }: GradedSolution) => (correct ? [conversation(prompt, solution)] : []),
    prompts: ({ prompt }: GradedSolution) => [{ prompt }],
  },
};

/** The conversion from one shape to another; undefined if there is none. */
export function conversion(from: Shape, to: Shape): ((example: Example) => Example[]) | undefined {
  const found = from === to ? undefined : conversions[from]?.[to];
  if (from === to) return (example) => [example];
  if (found === undefined) return undefined;
  return (example) => {
    const { source } = example;
    const made = found(example as never);
    return source === undefined ? made : made.map((one) => ({ ...one, source }));
  };
}
