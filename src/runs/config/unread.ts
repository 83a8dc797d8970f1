/**
 * Options that a run would not read are refused by name.
 *
 *     export const sftSchema = withRules(z.object({ … }), [
 *       { options: ['loraR', 'loraAlpha'], unread: ({ lora }) => !lora, because: 'there is no adapter without --lora' },
 *     ]);
 *
 * Rules hold only for what a person gave, on the command line, in a program or in a file; defaults and what a
 * checkpoint saved are never refused. A file may spell out a default, because that changes nothing.
 */
import type { z } from 'zod';
import { ConfigError, type Fault, type ResolvedConfig, resolveConfig, shownPath } from './config.ts';
import { type ConfigSchema, defaultValue } from './fields.ts';

export interface UnreadRule<Config> {
  options: readonly (keyof Config & string)[];
  /** Whether such a run does not read them. */
  unread: (config: Config) => boolean;
  because: string | ((config: Config) => string);
  /** The option that makes them unread: a schema without it does not inherit the rule. */
  by?: keyof Config & string;
}

const rules = new WeakMap<ConfigSchema, readonly UnreadRule<never>[]>();

export function withRules<S extends ConfigSchema>(schema: S, own: readonly UnreadRule<z.output<S>>[]): S {
  rules.set(schema, own as readonly UnreadRule<never>[]);
  return schema;
}

/** The rules of a schema. */
export const unreadRules = (schema: ConfigSchema): readonly UnreadRule<never>[] => rules.get(schema) ?? [];

/** The rules of another schema for the options that both have; `asOther` makes the other's config from this one's. */
export function inheritedRules<S extends ConfigSchema, Other extends ConfigSchema>(
  schema: S,
  other: Other,
  asOther: (config: z.output<S>) => z.output<Other>,
): UnreadRule<z.output<S>>[] {
  return unreadRules(other).flatMap(({ options, unread, because, by }) => {
    const names = options.filter((name) => name in schema.shape);
    if (names.length === 0 || (by !== undefined && !(by in schema.shape))) return [];
    return [
      {
        options: names as (keyof z.output<S> & string)[],
        unread: (config) => unread(asOther(config) as never),
        because: (config) => (typeof because === 'string' ? because : because(asOther(config) as never)),
      },
    ];
  });
}

/**
 * The config of a function that takes its options from a program; those that it would not read are refused. Defaults that are
 * spelled out change nothing, and are not.
 */
export function resolveInput<S extends ConfigSchema>(schema: S, input: Record<string, unknown>): z.output<S> {
  const { config, sources } = resolveConfig(schema, { flags: input });
  const given = Object.entries(config as Record<string, unknown>).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(defaultValue(schema.shape[name] as z.ZodType)),
  );
  refuseUnread(schema, { config, sources: Object.fromEntries(given.map(([name]) => [name, sources[name] as string])) });
  return config;
}

/** Throws a `ConfigError` with every option that was given and is not read. */
export function refuseUnread<S extends ConfigSchema>(schema: S, { config, sources }: ResolvedConfig<S>): void {
  const faults = new Map<string, Fault>();
  for (const { options, unread, because } of unreadRules(schema)) {
    for (const name of options) {
      const source = sources[name] ?? 'default';
      if (faults.has(name) || !isGiven(schema, name, config[name as keyof typeof config], source)) continue;
      if (!unread(config as never)) continue;
      const reason = typeof because === 'string' ? because : because(config as never);
      faults.set(name, unreadFault(name, source, reason));
    }
  }
  if (faults.size > 0) throw new ConfigError([...faults.values()]);
}

/**
 * The same for what only the model or the data can tell, once they are looked at:
 *
 *     const refuse = refusal(schema, resolved);
 *     if (…) refuse(['margin'], 'no pair has a margin');
 *
 * A workflow derives its options from others of its own (`command` is then undefined): they may not suit each of its
 * models, and are not refused.
 */
export function refusal<S extends ConfigSchema>(
  schema: S,
  { config, sources, command }: ResolvedConfig<S> & { command?: string },
): (options: readonly string[], because: string) => void {
  return (options, because) => {
    const faults = options.flatMap((name): Fault[] => {
      const source = sources[name] ?? 'default';
      if (!isGiven(schema, name, config[name as keyof typeof config], source)) return [];
      return [unreadFault(name, source, because)];
    });
    if (command !== undefined && faults.length > 0) throw new ConfigError(faults);
  };
}

const unreadFault = (name: string, source: string, because: string): Fault => ({
  path: shownPath([name], source),
  source,
  message: `has no effect here: ${because}.`,
});

const offValues: readonly unknown[] = [undefined, false, 0, -1];

/**
 * Whether a person gave it, and gave it a value that asks for something: false, 0 and −1 are how options are switched
 * off.
 */
export function isGiven(schema: ConfigSchema, name: string, value: unknown, source: string): boolean {
  if (source === 'default' || source === 'the checkpoint' || offValues.includes(value)) return false;
  if (source === 'command line') return true;
  const usual = defaultValue(schema.shape[name] as z.ZodType);
  return JSON.stringify(usual) !== JSON.stringify(value);
}
