/** How environments read a response: without its thinking, and by tags. Handles any text. */
import { stripThinking } from '../../text/index.ts';

/** The most characters read of a response. Moves and questions are shorter, and a model may write without end. */
const mostRead = 2000;

/** The end of the response, without its thinking. */
export const said = (response: string): string => stripThinking(response).slice(-mostRead).trim();

/** A tag and its content. */
export interface Tagged<Name extends string> {
  name: Name;
  content: string;
}

/** The first of these tags that is opened and closed in the text: `<tool>3*4</tool>`. undefined if there is none. */
export function firstTag<Name extends string>(text: string, names: readonly Name[]): Tagged<Name> | undefined {
  let first: (Tagged<Name> & { at: number }) | undefined;
  for (const name of names) {
    const at = text.indexOf(`<${name}>`);
    if (at < 0 || (first !== undefined && at > first.at)) continue;
    const start = at + name.length + 2;
    const end = text.indexOf(`</${name}>`, start);
    if (end >= 0) first = { name, content: text.slice(start, end).trim(), at };
  }
  return first && { name: first.name, content: first.content };
}
