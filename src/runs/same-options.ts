/**
 * A resumed run must keep the options that define what is optimised (`fixed` in a schema), because its steps would not
 * be comparable otherwise. All other options may change; `changedOptions` lists those that did.
 */
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import type { z } from 'zod';
import { isSameModel } from '../hub/place.ts';
import { quoted } from '../shell.ts';
import type { FoundCheckpoint } from './checkpoints.ts';
import { ConfigError, type ResolvedConfig, savedConfig, shownPath } from './config/config.ts';
import { type ConfigSchema, defaultValue, fieldMeta, snakeCase } from './config/fields.ts';

/** An option whose value differs from the resumed run's. */
export interface ChangedOption {
  name: string;
  was: unknown;
  is: unknown;
  source: string;
}

type Saved = Record<string, unknown>;

/** `before`: the saved config that the checkpoint was trained with. */
export function changedOptions<S extends ConfigSchema>(
  schema: S,
  { config, sources }: ResolvedConfig<S>,
  before: Saved,
): ChangedOption[] {
  const now = savedConfig(schema, config);
  return Object.keys(schema.shape).flatMap((name) => {
    const source = sources[name] ?? 'default';
    const type = schema.shape[name] as z.ZodType;
    if (['default', 'the checkpoint'].includes(source) || fieldMeta(type).transient) return [];
    const was = before[snakeCase(name)] ?? defaultValue(type);
    const is = now[snakeCase(name)];
    return JSON.stringify(was) === JSON.stringify(is) ? [] : [{ name, was, is, source }];
  });
}

/**
 * Refuses every change of a fixed option. Models and files may have another path. `before`: the saved config that the
 * checkpoint was trained with.
 */
export async function checkSameOptions<S extends ConfigSchema>(
  schema: S,
  changed: readonly ChangedOption[],
  before: Saved,
  { path }: FoundCheckpoint,
): Promise<void> {
  const faults = [];
  for (const { name, was, is, source } of changed) {
    const { fixed, meaning = (value) => value } = fieldMeta(schema.shape[name] as z.ZodType);
    if (fixed === undefined) continue;
    const [meant, means] = [await meaning(was, before, name), await meaning(is, before, name)];
    if (JSON.stringify(meant) === JSON.stringify(means) || (await meansTheSame(fixed, meant, means))) continue;
    const message = `cannot change in a resumed run: it began with ${shown(was)}, and this says ${shown(is)}. Leave it out to go on, or start a new run from the checkpoint with --model ${quoted(path)} in place of --resume-from.`;
    faults.push({ path: shownPath([name], source), source, message });
  }
  if (faults.length > 0) throw new ConfigError(faults);
}

async function meansTheSame(kind: 'value' | 'model' | 'file', was: unknown, is: unknown): Promise<boolean> {
  if (kind === 'value' || typeof was !== 'string' || typeof is !== 'string') return false;
  if (kind === 'model') return isSameModel(was, is);
  // A file that no longer exists is assumed to have moved to the new path. A misspelt path is refused when it is read.
  if (!existsSync(was) || !existsSync(is)) return true;
  return realpathSync(resolve(was)) === realpathSync(resolve(is));
}

/** An option's value as shown in a message. */
export function shown(value: unknown): string {
  if (value === undefined) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
