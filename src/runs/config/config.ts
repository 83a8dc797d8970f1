/**
 * One schema per command gives the type, the defaults, the options, the validation and the saved form.
 *
 *     const { config, sources } = await resolveConfig(rewardSchema, { file: 'rm.yaml', flags: { lr: '1e-5' } });
 *
 * Precedence: defaults < the checkpoint's saved config < the file < the command line. One `ConfigError` reports every
 * fault of every source, each with its path, the expected value and the nearest known name.
 */
import { readFileSync } from 'node:fs';
import { parseDocument } from 'yaml';
import type { z } from 'zod';
import { nearest, UserError } from '../../errors.ts';
import { expectation } from '../../expectation.ts';
import { lookup } from '../../lookup.ts';
import { spelled, spelledFor } from '../../spelling.ts';
import { adviceOn } from './elsewhere.ts';
import {
  acceptedNames,
  type ConfigSchema,
  camelCase,
  fieldKind,
  fieldMeta,
  fromText,
  inner,
  kebabCase,
  snakeCase,
} from './fields.ts';
import { isSecretName, redacted, withoutSecrets } from './secrets.ts';

export interface Fault {
  /** `training.learning_rate`, or `--learning-rate` for a flag. */
  path: string;
  /** Where the value came from: a file's name, `command line`, `checkpoint`, `default`. */
  source: string;
  message: string;
}

export class ConfigError extends UserError {
  override name = 'ConfigError';
  readonly faults: Fault[];
  constructor(found: readonly Fault[]) {
    const faults = found.map(spelledFault);
    const lines = faults.map((fault) => `  ${fault.path}: ${fault.message}${origin(fault.source)}`);
    super(`The configuration has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${lines.join('\n')}`);
    this.faults = faults;
  }
}

const commandLine = 'command line';
/** Sources that are not files. */
const unwritten = [commandLine, 'default', 'the checkpoint'];

/** A name from a file is quoted in the file's spelling, whatever the reader uses. */
function spelledFault({ path, source, message }: Fault): Fault {
  const own = unwritten.includes(source) ? spelled : (text: string) => spelledFor('file', text);
  return { path: own(path), source, message: own(message) };
}

const origin = (source: string) => (source === commandLine || source === 'default' ? '' : ` (in ${source})`);

export interface ConfigSources {
  /** The saved config of the checkpoint to resume. */
  checkpoint?: Record<string, unknown>;
  /** A YAML or JSON file, by path or already read. */
  file?: string | Record<string, unknown>;
  /** Values from the command line or from a program. Text is converted to the field's type. */
  flags?: Record<string, unknown>;
}

export interface ResolvedConfig<S extends ConfigSchema> {
  config: z.output<S>;
  /** The source of each top-level field's value. */
  sources: Record<string, string>;
}

type Tree = Record<string, unknown>;

export function resolveConfig<S extends ConfigSchema>(schema: S, given: ConfigSources = {}): ResolvedConfig<S> {
  const faults: Fault[] = [];
  const origins = new Map<string, string>();
  const layers: [string, Tree, boolean][] = [];
  if (given.checkpoint) layers.push(['the checkpoint', given.checkpoint, false]);
  if (given.file !== undefined) {
    const name = typeof given.file === 'string' ? given.file : 'the config file';
    const tree = typeof given.file === 'string' ? readConfigFile(given.file) : given.file;
    layers.push([name, tree, false]);
  }
  if (given.flags) layers.push([commandLine, given.flags, true]);

  let merged: Tree = {};
  for (const [source, tree, isText] of layers) {
    const renamed = rename(schema, tree, { source, isText, faults, origins, path: [] });
    if (source === 'the checkpoint') for (const name of transientNames(schema)) delete renamed[name];
    merged = merge(merged, renamed);
  }
  const parsed = schema.safeParse(merged, { reportInput: true });
  // With a command line, a missing value is named as an option.
  const unset = given.flags === undefined ? 'default' : commandLine;
  if (!parsed.success)
    for (const issue of parsed.error.issues) faults.push(...faultsOf(issue, schema, merged, origins, unset));
  if (faults.length > 0) throw new ConfigError(faults);
  const sources: Record<string, string> = {};
  for (const name of Object.keys(schema.shape)) sources[name] = origins.get(name) ?? 'default';
  return { config: parsed.data as z.output<S>, sources };
}

/** Parses a YAML or JSON file. JSON is YAML, so one parser reads both. */
export function readConfigFile(path: string): Tree {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') throw new UserError(`There is no config file ${path}.`);
    if (code === 'EISDIR') throw new UserError(`${path} is a folder; a config is a YAML or JSON file.`);
    throw new UserError(`Cannot read ${path}: ${(error as Error).message}`);
  }
  const document = parseDocument(text, { prettyErrors: true });
  const fault = document.errors[0];
  if (fault) throw new UserError(`${path} is not valid YAML or JSON: ${fault.message}`);
  const value = contentOf(document, path);
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new UserError(
      `${path} must hold fields ("name: value"), not ${Array.isArray(value) ? 'a list' : typeof value}.`,
    );
  }
  return value as Tree;
}

/** The parser refuses anchors that expand to huge documents, but does not know the file's name. */
function contentOf(document: ReturnType<typeof parseDocument>, path: string): unknown {
  try {
    return document.toJS();
  } catch (error) {
    throw new UserError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

interface RenameContext {
  source: string;
  isText: boolean;
  faults: Fault[];
  origins: Map<string, string>;
  path: (string | number)[];
}

/** Replaces every accepted spelling with the schema's name. Unknown and repeated names become faults. */
function rename(object: z.ZodObject, tree: Tree, context: RenameContext): Tree {
  const names = acceptedNames(object);
  const result: Tree = {};
  const spellings = new Map<string, string>();
  for (const [written, value] of Object.entries(tree)) {
    if (value === undefined) continue;
    const name = names.get(camelCase(written));
    const at = { ...context, path: [...context.path, name ?? written] };
    if (name === undefined) {
      const near = nearest(snakeCase(camelCase(written)), [...names.keys()].map(snakeCase));
      const elsewhere = adviceOn(camelCase(written));
      const hint = elsewhere ? ` ${elsewhere}` : near ? ` Did you mean "${shownName(near, context)}"?` : '';
      context.faults.push({
        path: shownPath(at.path, context.source),
        source: context.source,
        message: `is not a known field.${hint}`,
      });
    } else if (value === null) {
      // An empty YAML value, which mentions a field without setting it.
    } else if (name in result) {
      const path = shownPath(at.path, context.source);
      const both = [written, spellings.get(name) ?? written];
      const other = both.find((each) => each !== name && !path.endsWith(each)) ?? written;
      // Another spelling of the same word is quoted as typed, because the usual spelling would equal the path.
      const isTyped = context.source === commandLine && camelCase(other) !== name;
      const message = `is given twice (also as "${isTyped ? shownName(other, context) : other}").`;
      context.faults.push({ path, source: context.source, message });
    } else {
      spellings.set(name, written);
      context.origins.set(at.path.join('.'), context.source);
      const type = object.shape[name] as z.ZodType;
      const own = fieldMeta(type).elsewhere?.[camelCase(written)]?.(value) ?? value;
      result[name] = renameValue(type, context.isText ? fromText(type, own) : own, at);
    }
  }
  return result;
}

function renameValue(type: z.ZodType, value: unknown, context: RenameContext): unknown {
  const kind = fieldKind(type);
  if (kind.kind === 'object' && isTree(value)) return rename(kind.object, value, context);
  if (kind.kind === 'list' && Array.isArray(value)) {
    return value.map((item, i) => renameValue(kind.element, item, { ...context, path: [...context.path, i] }));
  }
  return value;
}

const isTree = (value: unknown): value is Tree => value !== null && typeof value === 'object' && !Array.isArray(value);

function merge(below: Tree, above: Tree): Tree {
  const result = { ...below };
  for (const [name, value] of Object.entries(above)) {
    const under = result[name];
    result[name] = isTree(under) && isTree(value) ? merge(under, value) : value;
  }
  return result;
}

const transientNames = (schema: ConfigSchema) =>
  Object.keys(schema.shape).filter((name) => fieldMeta(schema.shape[name] as z.ZodType).transient);

const shownName = (snake: string, context: { source: string }) =>
  context.source === commandLine ? `--${kebabCase(snake)}` : snake;

/** A field in its source's spelling: `--lora-r` on a command line, `lora_r` in a file. */
export function shownPath(path: readonly PropertyKey[], source: string): string {
  if (path.length === 0) return 'config';
  const dotted = path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${snakeCase(String(part))}`)).join('');
  return source === commandLine ? `--${kebabCase(dotted.slice(1))}` : dotted.slice(1);
}

type Issue = z.core.$ZodIssue;

function faultsOf(
  issue: Issue,
  schema: ConfigSchema,
  merged: Tree,
  origins: Map<string, string>,
  unset: string,
): Fault[] {
  let source = unset;
  for (let depth = issue.path.length; depth > 0; depth--) {
    const found = origins.get(issue.path.slice(0, depth).join('.'));
    if (found) {
      source = found;
      break;
    }
  }
  const path = shownPath(issue.path, source);
  if (issue.code === 'unrecognized_keys') {
    // `rename` has checked all names except those inside unions.
    if (fieldKind(typeAt(schema, issue.path)).kind === 'object') return [];
    return issue.keys.map((key) => ({ path: `${path}.${key}`, source, message: 'is not a known field.' }));
  }
  const name = String(issue.path.findLast((part) => typeof part === 'string') ?? '');
  return [
    {
      path,
      source,
      message: expectation(issue, valueAt(merged, issue.path), { secret: isSecretName(snakeCase(name)) }),
    },
  ];
}

function typeAt(schema: z.ZodType, path: readonly PropertyKey[]): z.ZodType {
  let type = inner(schema);
  for (const part of path) {
    const kind = fieldKind(type);
    if (kind.kind === 'object') type = kind.object.shape[String(part)] as z.ZodType;
    else if (kind.kind === 'list') type = kind.element;
    else return type;
  }
  return type;
}

function valueAt(tree: unknown, path: readonly PropertyKey[]): unknown {
  let value = tree;
  for (const part of path) value = (value as Record<PropertyKey, unknown> | undefined)?.[part];
  return value;
}

/** The config as saved with a run: in snake_case, without secrets and without options of a single invocation. */
export function savedConfig<S extends ConfigSchema>(schema: S, config: z.output<S>): Tree {
  return withoutSecrets(toSnake(schema, config as Tree)) as Tree;
}

function toSnake(type: z.ZodType, value: unknown): unknown {
  const kind = fieldKind(type);
  if (kind.kind === 'list' && Array.isArray(value)) return value.map((item) => toSnake(kind.element, item));
  if (kind.kind !== 'object' || !isTree(value)) return value;
  const result: Tree = {};
  for (const [name, item] of Object.entries(value)) {
    const field = lookup(kind.object.shape, name) as z.ZodType | undefined;
    const meta = field ? fieldMeta(field) : undefined;
    if (item === undefined || meta?.transient || meta?.secret || typeof item === 'function') continue;
    result[snakeCase(name)] = field ? toSnake(field, item) : item;
  }
  return result;
}

/** The resolved config as lines for `--dry-run`, grouped, with the source of every value that is not a default. */
export function describe<S extends ConfigSchema>(schema: S, resolved: ResolvedConfig<S>): string {
  const shown = toSnake(schema, resolved.config as Tree) as Tree;
  const groups = new Map<string, [string, string, string][]>();
  for (const name of Object.keys(schema.shape)) {
    const key = snakeCase(name);
    const value = (withoutSecrets({ [key]: shown[key] }) as Tree)[key];
    if (shown[key] === undefined) continue;
    const group = fieldMeta(schema.shape[name] as z.ZodType).group ?? 'Options';
    const source = resolved.sources[name] ?? 'default';
    const entries = groups.get(group) ?? [];
    entries.push([
      key,
      value === undefined ? redacted : JSON.stringify(value),
      source === 'default' ? '' : `  (${source})`,
    ]);
    groups.set(group, entries);
  }
  const lines: string[] = [];
  for (const [group, entries] of groups) {
    const width = Math.max(...entries.map(([key]) => key.length));
    lines.push(`${group}:`, ...entries.map(([key, value, source]) => `  ${key.padEnd(width)}  ${value}${source}`));
  }
  return lines.join('\n');
}
