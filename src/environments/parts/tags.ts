/** What a response says, as the environments read it: without its thinking, and by tags. Any text may come. */
import { stripThinking } from '../../text/index.ts';

/** No move or question here is longer, and what a model writes without end is not read to its end. */
const mostRead = 2000;

/** The response without its thinking, its end where it is long. */
export const said = (response: string): string => stripThinking(response).slice(-mostRead).trim();

/** A tag with what stands in it. */
export interface Tagged<Name extends string> {
  name: Name;
  content: string;
}

/** The first of these tags that a text opens and closes: `<tool>3*4</tool>`. Undefined where there is none. */
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
