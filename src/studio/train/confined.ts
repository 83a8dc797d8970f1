/**
 * What a form may read and write: models and data of the studio's folders or the hub, code of the studio's own folder
 * alone, and a run where the studio will find it. Links are followed first.
 */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { environmentFiles } from '../../environments/recipe.ts';
import { acceptedNames, type ConfigSchema, camelCase, kebabCase, type ResolvedRun } from '../../runs/index.ts';
import type { FieldFault } from '../api/session.ts';
import type { ModelPlaces } from '../commands/places.ts';
import type { Root } from '../http/folder.ts';
import { picks } from './fields.ts';

type Values = Readonly<Record<string, unknown>>;

/** Faults of values as they were typed, by whichever of a field's names. */
export function outsideFaults(typed: Values, places: ModelPlaces, schema: ConfigSchema): FieldFault[] {
  const names = acceptedNames(schema);
  const values: Record<string, unknown> = {};
  // Of a field that is given twice both are looked at.
  for (const [name, value] of Object.entries(typed)) {
    const field = names.get(camelCase(name)) ?? camelCase(name);
    values[field] = Object.hasOwn(values, field) ? [values[field], value].flat() : value;
  }
  return [...codeFaults(values, places.root), ...readFaults(values, places), ...writeFaults(values, places.root)];
}

/**
 * Faults of what a config file brings along, and of what a run to be resumed does: the run lies where the studio may read, its
 * data was its own user's choice, its code is checked.
 */
export function resolvedFaults(
  { config, resume, sources }: ResolvedRun<ConfigSchema>,
  places: ModelPlaces,
): FieldFault[] {
  const values = config as Values;
  const faults = codeFaults(values, places.root);
  if (resume !== undefined) {
    const given = Object.entries(values).filter(([name]) => sources[name] !== 'the checkpoint');
    return [...faults, ...readFaults({ ...Object.fromEntries(given), resumeFrom: resume.path }, places)];
  }
  const { outputDir } = values;
  const written = typeof outputDir === 'string' ? writeFaults({ outputDir }, places.root) : [];
  return [...faults, ...readFaults(values, places), ...written];
}

/** Fields whose file is run as code. */
const code = /^(rewardModule|env|agent)$|Module$/;

/** The files that a field runs. A recipe of environments may name several; one that cannot be read is refused elsewhere. */
function codeFiles(field: string, value: string): string[] {
  if (field !== 'env' && field !== 'agent') return [value];
  try {
    return environmentFiles(value, field === 'env' ? 'environment' : 'agent');
  } catch {
    return [];
  }
}

function codeFaults(values: Values, root: Root): FieldFault[] {
  const files = texts(values, (name) => code.test(name)).flatMap(([field, value]) =>
    codeFiles(field, value).map((file) => [field, file] as const),
  );
  return files.flatMap(([field, value]) => {
    const path = resolve(value);
    if (!/[./\\]/.test(value) || !existsSync(path) || root.find(path) !== undefined) return [];
    const flag = `--${kebabCase(field)}`;
    const where = `the folder that the studio was started on (${root.path})`;
    return [{ field, message: `${flag} is code, and is taken only from ${where}.` }];
  });
}

/** Fields whose file or folder is read. */
const isRead = (name: string) =>
  /^(config|fromConfig)$/.test(name) ||
  picks.some(([pattern, kind]) => kind !== 'folder' && kind !== 'task' && pattern.test(name));

function readFaults(values: Values, places: ModelPlaces): FieldFault[] {
  return texts(values, isRead).flatMap(([field, value]) =>
    places.allows(value)
      ? []
      : [{ field, message: `${value} lies outside of the studio's folder ${places.root.path}, and is not read.` }],
  );
}

function writeFaults(values: Values, root: Root): FieldFault[] {
  return texts(values, (name) => /Dir$/.test(name)).flatMap(([field, value]) => {
    if (isInside(resolve(value), root)) return [];
    const what = field === 'outputDir' ? ': the run would not be shown here.' : ', and is not written to.';
    return [{ field, message: `lies outside of the studio's folder ${root.path}${what}` }];
  });
}

/** Fields that hold text, by their names in camelCase. */
const texts = (values: Values, takes: (name: string) => boolean): [string, string][] =>
  Object.entries(values).flatMap(([name, value]) =>
    takes(name)
      ? [value].flat().flatMap((each): [string, string][] => (typeof each === 'string' ? [[name, each]] : []))
      : [],
  );

/** Whether a folder that may not exist yet will lie below the root. */
function isInside(path: string, root: Root): boolean {
  let folder = path;
  while (!existsSync(folder) && dirname(folder) !== folder) folder = dirname(folder);
  return root.find(folder) !== undefined;
}
