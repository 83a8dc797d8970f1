/**
 * Fields of a command's configuration: a zod type plus its description, group and aliases.
 *
 *     const schema = z.object({
 *       gradAccum: field(z.number().int().positive().default(4), {
 *         description: 'micro-batches per optimiser step', group: 'Optimiser', aliases: ['gradAccumSteps'],
 *       }),
 *     });
 *
 * Names are camelCase in TypeScript, snake_case in files and kebab-case on the command line. `field` must be the
 * outermost call, because zod makes a new type at every `.default()`.
 */
import { z } from 'zod';

export { camelCase, kebabCase, snakeCase } from '../../spelling.ts';

export interface FieldMeta {
  description: string;
  /** The heading of the option in `--help`. */
  group?: string;
  /** Other accepted names, in camelCase. */
  aliases?: readonly string[];
  /** Example values for `--help`. */
  examples?: readonly string[];
  /** Known values of an open-ended text field, which a form suggests. */
  names?: readonly string[];
  /** Only allowed in files: there is no command-line option. */
  fileOnly?: boolean;
  /** Belongs to one invocation (`resumeFrom`, `dryRun`): neither saved with the run nor read from a checkpoint. */
  transient?: boolean;
  /**
   * Defines what a run optimises, so a resumed run must not change it. Models and files are compared by what their
   * names refer to.
   */
  fixed?: 'value' | 'model' | 'file';
  /**
   * What a value of a fixed option, or none, means in a run with this saved config. An alias, or a default spelled out,
   * is then no change.
   */
  meaning?(value: unknown, saved: Readonly<Record<string, unknown>>, name: string): unknown;
  /**
   * Chooses the held-out examples. A resumed run may change it, and notes that its evaluations are then on other
   * examples.
   */
  picksHeldOut?: boolean;
  /** Never written or logged, whatever its name. */
  secret?: boolean;
  /** A list whose values follow the option one by one and are taken literally: `--stop a ', b'`. */
  variadic?: boolean;
  /** Not shown in `--help`, but accepted. */
  hidden?: boolean;
  /** Names in other libraries' config files, in camelCase, each with a conversion of the value. */
  elsewhere?: Readonly<Record<string, (value: unknown) => unknown>>;
}

const registry = z.registry<FieldMeta>();

export function field<T extends z.ZodType>(type: T, meta: FieldMeta): T {
  registry.add(type, meta);
  return type;
}

export function fieldMeta(type: z.ZodType): FieldMeta {
  return registry.get(type) ?? { description: type.description ?? '' };
}

export type ConfigSchema = z.ZodObject;

/** The kind of a field's value, without default and optionality. */
export type FieldKind =
  | { kind: 'boolean' | 'string' | 'other' }
  | { kind: 'number'; integer: boolean }
  | { kind: 'enum'; values: string[] }
  | { kind: 'list'; element: z.ZodType }
  | { kind: 'object'; object: z.ZodObject }
  | { kind: 'union'; options: z.ZodType[] };

const wrappers = new Set(['default', 'prefault', 'optional', 'nullable', 'nonoptional', 'readonly', 'catch']);

/** The type inside `.default()`, `.optional()`, `.nullable()` and pipes. */
export function inner(type: z.ZodType): z.ZodType {
  const def = type.def as unknown as { type: string; innerType?: z.ZodType; in?: z.ZodType; out?: z.ZodType };
  if (wrappers.has(def.type) && def.innerType) return inner(def.innerType);
  if (def.type === 'pipe' && def.in && def.out) {
    return inner((def.in.def as { type: string }).type === 'transform' ? def.out : def.in);
  }
  return type;
}

export function fieldKind(type: z.ZodType): FieldKind {
  const core = inner(type);
  if (core instanceof z.ZodBoolean) return { kind: 'boolean' };
  if (core instanceof z.ZodString) return { kind: 'string' };
  if (core instanceof z.ZodNumber) return { kind: 'number', integer: core.format?.includes('int') ?? false };
  if (core instanceof z.ZodEnum) return { kind: 'enum', values: core.options.map(String) };
  if (core instanceof z.ZodLiteral) return { kind: 'enum', values: [...core.values].map(String) };
  if (core instanceof z.ZodArray) return { kind: 'list', element: core.element as z.ZodType };
  if (core instanceof z.ZodObject) return { kind: 'object', object: core };
  if (core instanceof z.ZodUnion) return { kind: 'union', options: core.options as z.ZodType[] };
  return { kind: 'other' };
}

/** The value of a field that is not set; undefined if it is optional or required. */
export function defaultValue(type: z.ZodType): unknown {
  const parsed = type.safeParse(undefined);
  return parsed.success ? parsed.data : undefined;
}

export function isRequired(type: z.ZodType): boolean {
  return !type.safeParse(undefined).success;
}

/**
 * Converts text from a command line or the environment to the field's type. Text that does not fit is left for zod to
 * refuse.
 */
export function fromText(type: z.ZodType, value: unknown): unknown {
  const kind = fieldKind(type);
  if (kind.kind === 'list') {
    if (fieldMeta(type).variadic) return [value].flat().map((item) => fromText(kind.element, item));
    const items = Array.isArray(value) ? value : String(value).split(',');
    return items
      .map((item) => (typeof item === 'string' ? item.trim() : item))
      .filter((item) => item !== '')
      .map((item) => fromText(kind.element, item));
  }
  if (typeof value !== 'string') return value;
  const text = value.trim();
  if (kind.kind === 'number') return numberFrom(text) ?? value;
  if (kind.kind === 'boolean') {
    if (/^(true|yes|on|1)$/i.test(text)) return true;
    if (/^(false|no|off|0)$/i.test(text)) return false;
    return value;
  }
  if (kind.kind === 'union') {
    for (const option of kind.options) {
      const converted = fromText(option, value);
      if (option.safeParse(converted).success) return converted;
    }
  }
  return value;
}

function numberFrom(text: string): number | undefined {
  if (text === '') return undefined;
  const plain = text.replace(/(?<=\d)_(?=\d)/g, '');
  const number = Number(plain);
  return Number.isNaN(number) ? undefined : number;
}

/** `lora_r`, `lora-r` and `loraR` are the same name. */
/** Maps every accepted camelCase name, aliases included, to an object's field name. */
export function acceptedNames(object: z.ZodObject): Map<string, string> {
  const names = new Map<string, string>();
  for (const [name, type] of Object.entries(object.shape)) {
    names.set(name, name);
    const { elsewhere = {} } = fieldMeta(type as z.ZodType);
    for (const alias of [...aliasesOf(object, name), ...Object.keys(elsewhere)]) names.set(alias, name);
  }
  return names;
}

/** A command's output option is named after what it is, a file or a folder. These other names work too. */
const outputNames = ['out', 'output', 'outputDir'];

/** The other names of a field, on a command line and in files. */
export function aliasesOf(object: z.ZodObject, name: string): string[] {
  const { aliases = [] } = fieldMeta(object.shape[name] as z.ZodType);
  if (!outputNames.includes(name)) return [...aliases];
  const taken = [...Object.keys(object.shape), ...aliases];
  return [...aliases, ...outputNames.filter((other) => !taken.includes(other))];
}
