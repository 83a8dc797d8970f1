/** The verb of a command such as `train` or `tasks`: for a mistyped one the nearest name is suggested. */
import type { Command } from 'commander';
import { suggestion, UserError } from '../../errors.ts';

const hints = new WeakMap<Command, (verb: string) => string | undefined>();

/** Says what to type in place of words that are not verbs of the command, such as names of algorithms. */
export function hintAtVerbs(command: Command, hint: (verb: string) => string | undefined): void {
  hints.set(command, hint);
}

/** Finds the verb as the parser does: options of the command itself may come before it. */
export function checkVerb(program: Command, args: readonly string[]): void {
  const at = args.findIndex((arg) => !arg.startsWith('-'));
  const command = program.commands.find((each) => each.name() === args[at]);
  // `runs` takes a folder in place of a verb and checks it itself.
  if (command === undefined || command.commands.length === 0 || command.registeredArguments.length > 0) return;
  const verbs = command.commands.map((each) => each.name());
  const verb = firstWord(command, args.slice(at + 1));
  if (verb === undefined || verbs.includes(verb)) return;
  const hint = hints.get(command)?.(verb);
  const instead = hint === undefined ? suggestion(verb, verbs) : ` ${hint}`;
  throw new UserError(
    `There is no "${program.name()} ${command.name()} ${verb}".${instead} ${command.name()} takes one of: ${verbs.join(', ')}.`,
  );
}

function firstWord(command: Command, rest: readonly string[]): string | undefined {
  for (let i = 0; i < rest.length; i++) {
    const arg = rest[i] as string;
    if (!arg.startsWith('-')) return arg;
    const option = command.options.find(({ long, short }) => [long, short].includes(arg.split('=')[0]));
    if (arg === '--' || (option === undefined && !/^(-h|--help)$/.test(arg))) return undefined;
    if (option?.required && !arg.includes('=')) i++;
  }
  return undefined;
}
