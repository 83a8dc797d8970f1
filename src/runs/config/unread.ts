/**
 * Refuses, by name, options that a run would not read.
 *
 *     export const sftSchema = withRules(z.object({ … }), [
 *       { options: ['loraR', 'loraAlpha'], unread: ({ lora }) => !lora, because: 'there is no adapter without --lora' },
 *     ]);
 *
 * Rules apply only to values that a person gave, on the command line, in a program or in a file. Defaults and values
 * saved in a checkpoint are never refused. A file may spell out a default, which changes nothing.
 */
import type { z } from 'zod';
import { ConfigError, type Fault, type ResolvedConfig, resolveConfig, shownPath } from './config.ts';
import { type ConfigSchema, defaultValue } from './fields.ts';

export interface UnreadRule<Config> {
  options: readonly (keyof Config & string)[];
  /** Whether a run with this config ignores them. */
  unread: (config: Config) => boolean;
  because: string | ((config: Config) => string);
  /** The option that makes them unread. A schema without this option does not inherit the rule. */
  by?: keyof Config & string;
}

const rules = new WeakMap<ConfigSchema, readonly UnreadRule<never>[]>();

export function withRules<S extends ConfigSchema>(schema: S, own: readonly UnreadRule<z.output<S>>[]): S {
  rules.set(schema, own as readonly UnreadRule<never>[]);
  return schema;
}

export const unreadRules = (schema: ConfigSchema): readonly UnreadRule<never>[] => rules.get(schema) ?? [];

/** Rules of another schema for the options that both share. `asOther` converts this config to the other's. */
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
 * The config of a function called from a program. Refuses given options that it would not read, except defaults spelled
 * out.
 */
export function resolveInput<S extends ConfigSchema>(schema: S, input: Record<string, unknown>): z.output<S> {
  const { config, sources } = resolveConfig(schema, { flags: input });
  const given = Object.entries(config as Record<string, unknown>).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(defaultValue(schema.shape[name] as z.ZodType)),
  );
  refuseUnread(schema, { config, sources: Object.fromEntries(given.map(([name]) => [name, sources[name] as string])) });
  return config;
}

/** Throws a `ConfigError` with every given option that is not read. */
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
 * `refuseUnread` for what is only known from the model or the data:
 *
 *     const refuse = refusal(schema, resolved);
 *     if (…) refuse(['margin'], 'no pair has a margin');
 *
 * A workflow (`command` is undefined) derives these options from its own. They may not suit each of its models, and are
 * not refused.
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

/** Whether a person gave the option, with a value that switches something on: false, 0 and −1 switch it off. */
export function isGiven(schema: ConfigSchema, name: string, value: unknown, source: string): boolean {
  if (source === 'default' || source === 'the checkpoint' || offValues.includes(value)) return false;
  if (source === 'command line') return true;
  const usual = defaultValue(schema.shape[name] as z.ZodType);
  return JSON.stringify(usual) !== JSON.stringify(value);
}
