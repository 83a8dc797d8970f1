/**
 * The lines of a source file that declare something, with the comment above: what a chapter shows as "the code". They are read
 * from the sources that are installed, so they cannot differ from what runs.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AttuneError } from '../errors.ts';

export interface SourceLines {
  path: string;
  firstLine: number;
  text: string;
}

/** Reads the declaration of `name` (a function, constant, class, type or method) in a file under `root`. */
export function sourceLines(root: string, path: string, name: string): SourceLines {
  const installed = installedAs(path).find((each) => existsSync(join(root, each)));
  if (installed === undefined) throw new AttuneError(`The source ${path} is not installed.`);
  const lines = readFileSync(join(root, installed), 'utf8').split('\n');
  const at = lines.findIndex((line) => declares(line, name));
  if (at < 0) throw new AttuneError(`${path} declares no "${name}".`);
  const first = commentAbove(lines, at);
  return { path: installed, firstLine: first + 1, text: lines.slice(first, lastLine(lines, at) + 1).join('\n') };
}

/** The repository has TypeScript; the package and the bundle have the JavaScript that was made of it, comments included. */
function installedAs(path: string): string[] {
  const compiled = path.replace(/\.ts$/, '.js');
  return [path, compiled.replace(/^src\//, 'dist/'), compiled];
}

function declares(line: string, name: string): boolean {
  const escaped = name.replaceAll('$', '\\$');
  return (
    new RegExp(`^(export )?(async )?(function\\*?|const|class|interface|type) ${escaped}\\b`).test(line) ||
    new RegExp(`^ {2}(async )?['#]?${escaped}['?]?[(:<]`).test(line)
  );
}

function commentAbove(lines: readonly string[], at: number): number {
  let first = at;
  if (/\*\/\s*$/.test(lines[at - 1] ?? '')) {
    first = at - 1;
    while (first > 0 && !(lines[first] as string).trimStart().startsWith('/**')) first--;
  }
  return first;
}

/** The line on which every bracket that was opened is closed again and the statement ends. */
function lastLine(lines: readonly string[], at: number): number {
  let depth = 0;
  for (let i = at; i < lines.length; i++) {
    const code = (lines[i] as string).replaceAll(/'[^']*'|`[^`]*`|\/\/.*$|\/\*.*?\*\//g, '');
    for (const char of code) depth += '([{'.includes(char) ? 1 : ')]}'.includes(char) ? -1 : 0;
    if (depth <= 0 && /[;},]\s*$/.test(code)) return i;
  }
  return lines.length - 1;
}
