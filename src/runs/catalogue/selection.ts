/** Selects runs by name, path, tag or age, and tags them. */
import { join, resolve } from 'node:path';
import { suggestion, UserError } from '../../errors.ts';
import { writeJson } from '../json-files.ts';
import { type RunEntry, tagsFile } from './entry.ts';

/** Selects by path, name or `#tag`. A name that several runs share is refused; use the path. */
export function chooseRuns(all: readonly RunEntry[], names: readonly string[]): RunEntry[] {
  const chosen = names.flatMap((name) => {
    if (name.startsWith('#')) return all.filter(({ tags }) => tags.includes(name.slice(1)));
    const path = resolve(name);
    const found = all.filter((run) => run.path === path || run.name === name || run.path.endsWith(`/${name}`));
    if (found.length > 1 && !found.some((run) => run.path === path))
      throw new UserError(`"${name}" names several runs: ${found.map((run) => run.path).join(', ')}.`);
    if (found.length === 0) {
      const known = all.map((run) => run.name);
      throw new UserError(`There is no run "${name}".${suggestion(name, known)} See them all with: attune runs`);
    }
    return found.filter((run) => found.length === 1 || run.path === path);
  });
  return [...new Set(chosen)];
}

const units: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** Runs that started longer ago than an age such as `30d` or `12h`. */
export function oldEnough(runs: readonly RunEntry[], age: string, now = Date.now()): RunEntry[] {
  const [, amount = '', unit = ''] = /^(\d+(?:\.\d+)?)([mhdw])$/.exec(age) ?? [];
  const size = units[unit];
  if (size === undefined) throw new UserError(`--older-than ${age}: give a number and a unit, such as 30d, 12h or 2w.`);
  return runs.filter(({ created }) => now - Date.parse(created) > Number(amount) * size);
}

/** A tag may not begin with `-`, which removes a tag, or `#`, which refers to one. A line break would split a list. */
const isTag = /^[\p{L}\p{N}][^\p{C}\p{Zl}\p{Zp}]{0,63}$/u;

/** Adds tags, or removes those with a leading `-`. Returns the run's tags. */
export function tagRun(run: RunEntry, changes: readonly string[]): string[] {
  const tags = new Set(run.tags);
  for (const change of changes) {
    if (change.trim() === '') throw new UserError('A tag is a word; this one is empty.');
    if (change.startsWith('-')) tags.delete(change.slice(1));
    else if (isTag.test(change)) tags.add(change);
    else
      throw new UserError(
        `A tag begins with a letter or a digit and has at most 64 characters, on one line: ${JSON.stringify(change)} cannot be one.`,
      );
  }
  const list = [...tags].sort();
  if (changes.length > 0) writeJson(join(run.path, tagsFile), list);
  return list;
}
