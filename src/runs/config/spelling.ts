/**
 * Messages name options as the command line does (`--batch-size`). A program wrote `batchSize`, and is told so:
 *
 *     inProgramNames('--lora-r: has no effect here: there is no adapter without --lora.', names)
 *     // 'loraR: has no effect here: there is no adapter without lora.'
 */
import { UserError } from '../../errors.ts';
import { ConfigError } from './config.ts';
import { camelCase } from './fields.ts';

/** The text with the names of known options as a program spells them; `--no-lora` becomes `lora: false`. */
export function inProgramNames(text: string, names: readonly string[]): string {
  return text.replace(/(?<![\w-])--(no-)?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)/g, (typed, off, kebab) => {
    const whole = camelCase(`${off ?? ''}${kebab}`);
    if (names.includes(whole)) return whole;
    return off !== undefined && names.includes(camelCase(kebab)) ? `${camelCase(kebab)}: false` : typed;
  });
}

/** The same error in the names of a program; its class and place stay, others than a user's mistakes are left alone. */
export function spelledForProgram<E extends Error>(error: E, names: readonly string[]): E {
  if (!(error instanceof UserError)) return error;
  const { message, stack } = error;
  error.message = inProgramNames(message, names);
  error.stack = stack?.replace(message, () => error.message);
  if (error instanceof ConfigError)
    for (const fault of error.faults) {
      fault.path = inProgramNames(fault.path, names);
      fault.message = inProgramNames(fault.message, names);
    }
  return error;
}
