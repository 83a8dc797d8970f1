/**
 * Reasoning models write `<think>…</think>` before their answer. Reward models and verifiers look at the answer only.
 *
 *     splitThinking('<think>2+2</think>4')   // { thinking: '2+2', answer: '4' }
 *     stripThinking('<think>cut off by the t')   // ''
 */
const OPEN = '<think>';
const CLOSE = '</think>';

/**
 * The response without its thinking. A block that never closes runs to the end; a lone `</think>` ends one that the
 * prompt opened.
 */
export function stripThinking(text: string): string {
  return splitThinking(text).answer;
}

/** Splits a response into its thinking and the rest. */
export function splitThinking(text: string): { thinking: string; answer: string } {
  if (!text.includes(OPEN) && !text.includes(CLOSE)) return { thinking: '', answer: text };
  const thoughts: string[] = [];
  const answers: string[] = [];
  let rest = text;
  const firstClose = rest.indexOf(CLOSE);
  if (firstClose >= 0 && !rest.slice(0, firstClose).includes(OPEN)) {
    // The chat template wrote the opening tag, so the response starts inside the block.
    thoughts.push(rest.slice(0, firstClose));
    rest = rest.slice(firstClose + CLOSE.length);
  }
  for (let open = rest.indexOf(OPEN); open >= 0; open = rest.indexOf(OPEN)) {
    answers.push(rest.slice(0, open));
    const inside = rest.slice(open + OPEN.length);
    const close = inside.indexOf(CLOSE);
    thoughts.push(close < 0 ? inside : inside.slice(0, close));
    rest = close < 0 ? '' : inside.slice(close + CLOSE.length);
  }
  answers.push(rest);
  return { thinking: thoughts.map((thought) => thought.trim()).join('\n'), answer: answers.join('').trim() };
}
