/** Arithmetic with a calculator: `<tool>12*34</tool>` is evaluated, `<answer>408</answer>` ends the episode. */
import type { Random } from '../../random.ts';
import { exactValue, parseExpression } from '../../tasks/parts/expression.ts';
import { defineEnvironment } from '../parts/environment.ts';
import { firstTag, said } from '../parts/tags.ts';

/** The most turns in an episode, including the answer. */
const mostTurns = 6;

/** Problems that a small model cannot do in its head, and that the calculator solves in one call. */
function problem(random: Random, difficulty: number): string {
  const [a, b, c, d] = Array.from({ length: 4 }, () => random.int(12, 99)) as [number, number, number, number];
  switch (difficulty) {
    case 1:
      return `${a}*${random.int(3, 9)}`;
    case 2:
      return `${a}*${b}`;
    case 3:
      return `${a}*${b}+${c}`;
    case 4:
      return `(${a}+${b})*${c}-${d}`;
    default:
      return `${a}*${b}-${c}*${d}`;
  }
}

/** The value of an expression as text, with up to four decimals; undefined if it is invalid. */
export function worked(text: string): string | undefined {
  // The parser does not support unary minus.
  const tree = parseExpression(text.replace(/^\s*-/, '0-').replace(/\(\s*-/g, '(0-'));
  const value = tree === undefined ? undefined : exactValue(tree);
  if (value === undefined) return undefined;
  return value.bottom === 1 ? String(value.top) : String(Number((value.top / value.bottom).toFixed(4)));
}

export const calculator = defineEnvironment({
  name: 'calculator',
  summary: 'arithmetic with a calculator as a tool: <tool>12*34</tool>, then <answer>408</answer>',
  levels: 5,
  judged: true,
  start({ random, difficulty }) {
    const expression = problem(random, difficulty);
    const right = worked(expression);
    return {
      messages: `What is ${expression}? <tool>2*3</tool> works it out. End with <answer>6</answer>.`,
      key: expression,
      step(response, { turn }) {
        const tag = firstTag(said(response), ['tool', 'answer']);
        if (tag?.name === 'answer') {
          const success = worked(tag.content) === right && /^\s*-?[\d.]+\s*$/.test(tag.content);
          return { reward: Number(success), done: true, success };
        }
        if (turn >= mostTurns) return { observation: 'No turns left.', done: true, success: false };
        if (tag === undefined) return { observation: 'Use <tool>…</tool> or <answer>…</answer>.' };
        return { observation: worked(tag.content) ?? 'That is no sum: whole numbers, + - * / and brackets.' };
      },
    };
  },
  demonstrate({ random, difficulty, skill }) {
    const expression = problem(random, difficulty);
    const right = Number(worked(expression));
    // An unskilled player calculates in its head.
    if (random.chance(skill)) return [`<tool>${expression}</tool>`, `<answer>${right}</answer>`];
    return [`<answer>${right + random.pick([-100, -10, -2, -1, 1, 2, 10, 100])}</answer>`];
  },
});
