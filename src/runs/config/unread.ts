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
import { ConfigError, type Fault, type ResolvedConfig, shownPath } from './config.ts';
import { type ConfigSchema, defaultValue } from './fields.ts';

export interface UnreadRule<Config> {
  options: readonly (keyof Config & string)[];
  /** Whether such a run does not read them. */
  unread: (config: Config) => boolean;
  because: string | ((config: Config) => string);
}

const rules = new WeakMap<ConfigSchema, readonly UnreadRule<never>[]>();

export function withRules<S extends ConfigSchema>(schema: S, own: readonly UnreadRule<z.output<S>>[]): S {
  rules.set(schema, own as readonly UnreadRule<never>[]);
  return schema;
}

/** Throws a `ConfigError` with every option that was given and is not read. */
export function refuseUnread<S extends ConfigSchema>(schema: S, { config, sources }: ResolvedConfig<S>): void {
  const faults = new Map<string, Fault>();
  for (const { options, unread, because } of rules.get(schema) ?? []) {
    for (const name of options) {
      const source = sources[name] ?? 'default';
      if (faults.has(name) || !isGiven(schema, name, config[name as keyof typeof config], source)) continue;
      if (!unread(config as never)) continue;
      const reason = typeof because === 'string' ? because : because(config as never);
      faults.set(name, { path: shownPath([name], source), source, message: `has no effect here: ${reason}.` });
    }
  }
  if (faults.size > 0) throw new ConfigError([...faults.values()]);
}

const offValues: readonly unknown[] = [undefined, false, 0, -1];

/**
 * Whether a person gave it, and gave it a value that asks for something: false, 0 and −1 are how options are switched
 * off.
 */
function isGiven(schema: ConfigSchema, name: string, value: unknown, source: string): boolean {
  if (source === 'default' || source === 'the checkpoint' || offValues.includes(value)) return false;
  if (source === 'command line') return true;
  const usual = defaultValue(schema.shape[name] as z.ZodType);
  return JSON.stringify(usual) !== JSON.stringify(value);
}
