/**
 * A config as a command line and as a config file, each with only what differs from the defaults.
 *
 *     commandLine('npx attune', 'train policy', policySchema, { lr: 2e-4 });     // npx attune train policy --lr 2e-4
 */
import { stringify } from 'yaml';
import type { z } from 'zod';
import {
  type ConfigSchema,
  camelCase,
  defaultValue,
  fieldKind,
  fieldMeta,
  kebabCase,
  snakeCase,
} from '../../runs/index.ts';
import { quoted } from '../../shell.ts';

/** Values by camelCase name, without those that equal their default; snake_case names are taken too. */
export function differences(schema: ConfigSchema, values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const given = new Map(Object.entries(values).map(([name, value]) => [camelCase(name), value]));
  const result: Record<string, unknown> = {};
  for (const [name, type] of fieldsOf(schema)) {
    const value = given.get(name);
    if (value === undefined || value === null || value === '' || same(value, defaultValue(type))) continue;
    result[name] = value;
  }
  return result;
}

/** Arguments after `attune train …`, as they are given to a process. */
export function argumentsOf(schema: ConfigSchema, values: Readonly<Record<string, unknown>>): string[] {
  const types = new Map(fieldsOf(schema));
  return Object.entries(differences(schema, values)).flatMap(([name, value]) => {
    const type = types.get(name) as z.ZodType;
    const flag = `--${kebabCase(name)}`;
    if (typeof value === 'boolean') return [value ? flag : `--no-${kebabCase(name)}`];
    if (Array.isArray(value)) return fieldMeta(type).variadic ? [flag, ...value.map(String)] : [flag, value.join(',')];
    // A value that begins with dashes would be read as an option.
    const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
    return text.startsWith('-') && Number.isNaN(Number(text)) ? [`${flag}=${text}`] : [flag, text];
  });
}

export function commandLine(
  attune: string,
  command: string,
  schema: ConfigSchema,
  values: Readonly<Record<string, unknown>>,
): string {
  return [attune, command, ...argumentsOf(schema, values).map(quoted)].join(' ');
}

export function yamlOf(schema: ConfigSchema, values: Readonly<Record<string, unknown>>): string {
  const snake = Object.entries(differences(schema, values)).map(([name, value]) => [snakeCase(name), value]);
  return snake.length === 0 ? '' : stringify(Object.fromEntries(snake));
}

/** Fields that a form shows: not those of files only, and none that are only renamed for other programs. */
export function fieldsOf(schema: ConfigSchema): [string, z.ZodType][] {
  return (Object.entries(schema.shape) as [string, z.ZodType][]).filter(([, type]) => {
    const { fileOnly, hidden } = fieldMeta(type);
    return !fileOnly && !hidden && !['object', 'other'].includes(fieldKind(type).kind);
  });
}

/** Text from a form equals the number it stands for. */
function same(value: unknown, standard: unknown): boolean {
  if (JSON.stringify(value) === JSON.stringify(standard)) return true;
  if (typeof standard === 'number') return String(value).trim() !== '' && Number(value) === standard;
  if (Array.isArray(standard)) return String(value) === standard.join(',');
  return standard !== undefined && String(value) === String(standard);
}
