/**
 * Makes a command from its schema: options with defaults and help, a YAML or JSON config file, all faults reported at
 * once.
 *
 *     registerCommand(program, {
 *       name: 'inspect', description: '…', schema, words: ['model'],      // attune inspect MODEL, or --model MODEL
 *       run: async (config) => print(report(await inspectModel(config.model))),
 *     });
 */
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../../errors.ts';
import {
  type ConfigSchema,
  field,
  fieldMeta,
  isRequired,
  kebabCase,
  type ResolvedConfig,
  refuseUnread,
  resolveConfig,
} from '../../runs/index.ts';
import { addSchemaOptions, schemaFlags } from './options.ts';

export interface CommandSpec<S extends ConfigSchema> {
  name: string;
  description: string;
  schema: S;
  /** Fields that are positional arguments, in this order. */
  words?: readonly (keyof z.output<S> & string)[];
  examples?: readonly string[];
  /** Runs when only the parent's name is given. */
  isDefault?: boolean;
  run: (config: z.output<S>) => void | Promise<void>;
}

const file = {
  config: field(z.string().optional(), { description: 'YAML or JSON file with any of these options', transient: true }),
};

/** A positional argument. */
interface Word {
  name: string;
  /** Whether it takes all words that follow. */
  isList: boolean;
}

export function registerCommand<S extends ConfigSchema>(parent: Command, spec: CommandSpec<S>): Command {
  const { examples = [] } = spec;
  const schema = spec.schema.extend(file);
  const words = (spec.words ?? []).map((name) => ({
    name,
    isList: fieldMeta(schema.shape[name] as z.ZodType).variadic ?? false,
  }));
  const command = parent.command(spec.name, { isDefault: spec.isDefault }).description(spec.description);
  for (const { name, isList } of words) {
    const type = schema.shape[name] as z.ZodType;
    const shown = kebabCase(name);
    // Optional for the parser: a missing one is reported with the other faults.
    command.argument(`[${shown}${isList ? '...' : ''}]`, isRequired(type) ? `also as --${shown}` : '');
  }
  addSchemaOptions(command, schema);
  if (examples.length > 0)
    command.addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`);
  command.action(async () => {
    const flags = schemaFlags(command, schema);
    const { config: path, ...given } = flags;
    const resolved = resolveConfig(schema, {
      flags: withWords(given, words, command.args),
      ...(path === undefined ? {} : { file: String(path) }),
    });
    refuseUnread(spec.schema, resolved as unknown as ResolvedConfig<S>);
    const { config: _file, ...rest } = resolved.config as Record<string, unknown>;
    await spec.run(rest as z.output<S>);
  });
  return command;
}

/** A word stands for the first field that no option gives: `generate --model M "text"` has the text, `generate M "text"` both. */
function withWords(
  flags: Record<string, unknown>,
  words: readonly Word[],
  typed: readonly string[],
): Record<string, unknown> {
  const open = words.filter(({ name }) => !(name in flags));
  if (typed.length > open.length && !open.at(-1)?.isList) refuseTwice(flags, words, typed);
  const result = { ...flags };
  for (const [i, { name, isList }] of open.entries())
    if (i < typed.length) result[name] = isList ? typed.slice(i) : typed[i];
  return result;
}

function refuseTwice(flags: Record<string, unknown>, words: readonly Word[], typed: readonly string[]): void {
  for (const [i, { name }] of words.entries())
    if (i < typed.length && name in flags)
      throw new UserError(`--${kebabCase(name)} is given twice: also as "${typed[i]}".`);
}
