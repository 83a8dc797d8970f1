/**
 * What an unknown option or command may have meant. The parser compares with the names in its help only; here aliases,
 * beginnings of names and names of other programs count too.
 */
import type { Command, CommanderError } from 'commander';
import { nearest } from '../../errors.ts';
import { adviceOn } from '../../runs/config/elsewhere.ts';
import { camelCase } from '../../runs/config/fields.ts';

/** The parser's complaint with what was meant, where the parser did not find it. */
export function withMeant(usage: string, program: Command, args: readonly string[], error: CommanderError): string {
  const [, name = ''] = /unknown (?:option|command) '([^']+)'/.exec(usage) ?? [];
  // The parser names an option of a command above as it is, which this command does not take.
  const itself = `\n(Did you mean ${name}?)`;
  if (usage.includes(itself)) return withMeant(usage.replace(itself, ''), program, args, error);
  if (usage.includes('Did you mean')) return usage;
  const hint =
    error.code === 'commander.unknownOption' ? optionMeant(program, args, name) : commandMeant(program, name);
  if (name === '' || hint === undefined) return usage;
  const [first, ...rest] = usage.split('\n');
  return [first, `(${hint})`, ...rest].join('\n');
}

function optionMeant(program: Command, args: readonly string[], flag: string): string | undefined {
  const [name = ''] = flag.split('=');
  const advice = adviceOn(camelCase(name.replace(/^-+/, '')));
  if (advice !== undefined) return advice;
  const known = calledCommands(program, args)
    .flatMap(({ options }) => options.flatMap(({ long }) => long ?? []))
    .filter((each) => each !== name);
  const found = nearest(name, known) ?? beginningWith(name, 5, known);
  return found === undefined ? undefined : `Did you mean ${found}?`;
}

function commandMeant(program: Command, name: string): string | undefined {
  const known = program.commands.map((command) => command.name());
  const found = nearest(name, known) ?? beginningWith(name, 3, known);
  return found === undefined ? undefined : `Did you mean ${found}?`;
}

/** The shortest name that begins so; of fewer letters nothing is guessed. */
function beginningWith(name: string, leastLetters: number, known: readonly string[]): string | undefined {
  if (name.length < leastLetters) return undefined;
  return known.filter((each) => each.startsWith(name)).sort((a, b) => a.length - b.length)[0];
}

/** The commands that the words name, the innermost last. */
function calledCommands(program: Command, args: readonly string[]): Command[] {
  const called = [program];
  for (const word of args) {
    const next = called.at(-1)?.commands.find((command) => command.name() === word);
    if (next !== undefined) called.push(next);
  }
  return called;
}
