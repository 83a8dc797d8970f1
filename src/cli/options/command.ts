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

export function registerCommand<S extends ConfigSchema>(parent: Command, spec: CommandSpec<S>): Command {
  const { words = [], examples = [] } = spec;
  const schema = spec.schema.extend(file);
  const command = parent.command(spec.name, { isDefault: spec.isDefault }).description(spec.description);
  for (const word of words) {
    const type = schema.shape[word] as z.ZodType;
    const name = `${kebabCase(word)}${fieldMeta(type).variadic ? '...' : ''}`;
    // Optional for the parser: a missing one is reported with the other faults.
    command.argument(`[${name}]`, isRequired(type) ? `also as --${kebabCase(word)}` : '');
  }
  addSchemaOptions(command, schema);
  if (examples.length > 0)
    command.addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`);
  command.action(async () => {
    const flags = schemaFlags(command, schema);
    const { config: path, ...given } = flags;
    const resolved = resolveConfig(schema, {
      flags: withWords(given, words, command.processedArgs),
      ...(path === undefined ? {} : { file: String(path) }),
    });
    refuseUnread(spec.schema, resolved as unknown as ResolvedConfig<S>);
    const { config: _file, ...rest } = resolved.config as Record<string, unknown>;
    await spec.run(rest as z.output<S>);
  });
  return command;
}

function withWords(
  flags: Record<string, unknown>,
  words: readonly string[],
  typed: readonly unknown[],
): Record<string, unknown> {
  const result = { ...flags };
  for (const [i, word] of words.entries()) {
    const value = typed[i];
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
    if (word in flags) throw new UserError(`--${kebabCase(word)} is given twice: also as "${value}".`);
    result[word] = value;
  }
  return result;
}
