/** What a program says of itself: the comment that its file opens with. */
import { readFileSync } from 'node:fs';

/** @param {string} path @returns {string} the first comment of a file, without its stars */
export function openingComment(path) {
  const comment = /^(?:#!.*\n)?\/\*\*(.*?)\*\//s.exec(readFileSync(path, 'utf8'))?.[1] ?? '';
  return comment.replaceAll(/^ *\* ?/gm, '').trim();
}

/** @param {readonly string[]} args */
export const asksForHelp = (args) => args.some((arg) => arg === '--help' || arg === '-h');

/** Does `work`; an option that its parseArgs does not know is a message and exit code 2, not a stack trace. */
export async function sayingMistakes(work) {
  try {
    return await work();
  } catch (error) {
    if (!`${error?.code}`.startsWith('ERR_PARSE_ARGS')) throw error;
    console.error(`${error.message}\n--help lists the options.`);
    process.exitCode = 2;
    return undefined;
  }
}
