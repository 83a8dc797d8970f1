/** Turns an example of any shape into named texts and a number of turns, for statistics. */
import type { Example, ExampleOf, Message, Shape } from '../data/index.ts';

export interface Text {
  characters: number;
  words: number;
}

export interface Aspect {
  /** The prompt under "prompt", every response under its own name. */
  parts: Record<string, string>;
  /** Number of user messages. */
  turns: number;
  /** Labels of the example or of its steps. */
  labels?: string[];
  /** Steps of the solution. */
  steps?: number;
}

const stepNames = { '1': 'right', '0': 'neutral', '-1': 'wrong', null: 'unlabelled' };

const readers: { [S in Shape]: (example: ExampleOf[S]) => Aspect } = {
  preference: ({ prompt, chosen, rejected }) => aspect(prompt, { chosen, rejected }),
  unpaired: ({ prompt, completion, label }) => labelled(prompt, label ? 'desirable' : 'undesirable', completion),
  prompts: ({ prompt }) => aspect(prompt, {}),
  messages: ({ messages }) => {
    const last = messages.findLastIndex((message) => message.role === 'assistant');
    return aspect(messages.slice(0, last), { reply: messages[last]?.content ?? '' });
  },
  text: ({ text }) => ({ parts: { text }, turns: 1 }),
  graded: ({ prompt, solution, correct }) => labelled(prompt, correct ? 'correct' : 'incorrect', solution),
  steps: ({ prompt, steps }) => ({
    ...aspect(prompt, { solution: steps.map((step) => step.text).join('\n') }),
    labels: steps.map(({ label }) => stepNames[`${label}`]),
    steps: steps.length,
  }),
};

export function aspectOf(shape: Shape, example: Example): Aspect {
  return (readers[shape] as (example: Example) => Aspect)(example);
}

function labelled(prompt: Message[], label: string, response: string): Aspect {
  return { ...aspect(prompt, { [label]: response }), labels: [label] };
}

function aspect(prompt: Message[], responses: Record<string, string>): Aspect {
  const text = prompt.map((message) => message.content).join('\n\n');
  return { parts: { prompt: text, ...responses }, turns: prompt.filter((message) => message.role === 'user').length };
}
