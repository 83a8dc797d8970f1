/**
 * A command's options from its schema: grouped help with defaults, `--no-x` for switches, comma-separated lists.
 *
 *     addSchemaOptions(command, rewardSchema);
 *     command.action(() => trainReward(resolveConfig(rewardSchema, { flags: schemaFlags(command, rewardSchema) })));
 */
import { type Command, Option } from 'commander';
import type { z } from 'zod';
import {
  aliasesOf,
  type ConfigSchema,
  camelCase,
  defaultValue,
  type FieldKind,
  fieldKind,
  fieldMeta,
  isRequired,
  kebabCase,
} from '../../runs/config/fields.ts';

/** Adds one option per field; nested objects and fields marked `fileOnly` are for config files. */
export function addSchemaOptions(command: Command, schema: ConfigSchema): Command {
  for (const [name, type] of Object.entries(schema.shape) as [string, z.ZodType][]) {
    const meta = fieldMeta(type);
    const kind = fieldKind(type);
    if (meta.fileOnly || !isFlag(kind)) continue;
    const names = [name, ...aliasesOf(schema, name)];
    for (const [i, spelled] of names.entries()) {
      for (const option of optionsFor(spelled, type, kind)) {
        if (i > 0 || meta.hidden) option.hideHelp();
        option.helpGroup(`${meta.group ?? 'Options'}:`);
        command.addOption(option);
      }
    }
  }
  return command;
}

/** The values typed by the user, by field name, unconverted: `resolveConfig` converts and checks them all together. */
export function schemaFlags(command: Command, schema: ConfigSchema): Record<string, unknown> {
  const flags: Record<string, unknown> = {};
  for (const name of Object.keys(schema.shape)) {
    for (const spelled of [name, ...aliasesOf(schema, name)]) {
      const attribute = camelCase(kebabCase(spelled));
      const source = command.getOptionValueSource(attribute);
      // Two spellings of one field stay separate, so that resolveConfig can report that it was given twice.
      if (source === 'cli' || source === 'env') flags[spelled] = command.getOptionValue(attribute);
    }
  }
  return flags;
}

function isFlag(kind: FieldKind): boolean {
  if (kind.kind === 'object' || kind.kind === 'other') return false;
  return kind.kind !== 'list' || isFlag(fieldKind(kind.element));
}

function optionsFor(name: string, type: z.ZodType, kind: FieldKind): Option[] {
  const flag = kebabCase(name);
  const text = helpText(type, kind);
  if (kind.kind === 'boolean') {
    const yes = new Option(`--${flag}`, text);
    const no = new Option(`--no-${flag}`, `turns off: ${text}`);
    // Help shows only the form that changes the default.
    (defaultValue(type) === true ? yes : no).hideHelp();
    return [yes, no];
  }
  const value = fieldMeta(type).variadic ? 'values...' : argumentName(kind);
  return [new Option(`--${flag} <${value}>`, text)];
}

function argumentName(kind: FieldKind): string {
  if (kind.kind === 'number') return kind.integer ? 'n' : 'number';
  if (kind.kind === 'enum') return 'name';
  if (kind.kind === 'list') return `${argumentName(fieldKind(kind.element))},...`;
  return 'value';
}

function helpText(type: z.ZodType, kind: FieldKind): string {
  const meta = fieldMeta(type);
  const notes: string[] = [];
  const element = kind.kind === 'list' ? fieldKind(kind.element) : kind;
  if (element.kind === 'enum') notes.push(`${kind.kind === 'list' ? 'any' : 'one'} of: ${element.values.join(', ')}`);
  const standard = defaultValue(type);
  if (isRequired(type)) notes.push('required');
  else if (standard === true) notes.push('on by default');
  else if (!isNothing(standard)) notes.push(`default: ${shown(standard)}`);
  if (meta.examples?.length) notes.push(`e.g. ${meta.examples.join(', ')}`);
  if (meta.aliases?.length) notes.push(`also ${meta.aliases.map((alias) => `--${kebabCase(alias)}`).join(', ')}`);
  return notes.length > 0 ? `${meta.description} (${notes.join('; ')})` : meta.description;
}

const isNothing = (value: unknown) =>
  value === undefined ||
  value === null ||
  value === false ||
  value === '' ||
  (Array.isArray(value) && value.length === 0);

function shown(value: unknown): string {
  if (Array.isArray(value)) return value.join(',');
  if (typeof value === 'string') return /\s/.test(value) ? JSON.stringify(value) : value;
  return typeof value === 'boolean' ? String(value) : numberText(value as number);
}

const numberText = (value: number) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value));
