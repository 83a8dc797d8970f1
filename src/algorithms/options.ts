/**
 * An algorithm's options: its defaults with the caller's changes. Options that the algorithm does not read are refused.
 */
import { suggestion, UserError } from '../errors.ts';

export function withDefaults<Options extends object>(
  algorithm: string,
  neutral: Options,
  defaults: Partial<Options>,
  changes: Partial<Options>,
): Options {
  for (const name of Object.keys(changes)) {
    if (changes[name as keyof Options] === undefined || Object.hasOwn(defaults, name)) continue;
    const known = Object.keys(defaults);
    throw new UserError(
      `${optionName(name)} has no effect on ${algorithm}.${suggestion(name, known)} It takes: ${known.map(optionName).join(', ')}.`,
    );
  }
  const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined));
  for (const [name, value] of Object.entries(given)) {
    const wanted = typeof neutral[name as keyof Options];
    if (typeof value !== wanted || Number.isNaN(value))
      throw new UserError(`${optionName(name)} of ${algorithm} is ${value}: expected a ${wanted}.`);
  }
  return { ...neutral, ...defaults, ...given };
}

/** An option's name as typed: `klCoef` is --kl-coef. */
const optionName = (name: string) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** Finds by name or alias; `_` counts as `-`, and case does not matter. */
export function findByName<Entry extends { name: string; aliases?: readonly string[] }>(
  entries: readonly Entry[],
  name: string,
  what: string,
): Entry {
  const wanted = name.toLowerCase().replaceAll('_', '-');
  const found = entries.find((entry) => entry.name === wanted || entry.aliases?.includes(wanted));
  if (found) return found;
  const known = entries.map((entry) => entry.name);
  const names = entries.flatMap((entry) => [entry.name, ...(entry.aliases ?? [])]);
  throw new UserError(`There is no ${what} "${name}".${suggestion(wanted, names)} Known: ${known.join(', ')}.`);
}
