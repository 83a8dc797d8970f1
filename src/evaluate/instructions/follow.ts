/**
 * Which instructions of a prompt a response follows (IFEval, Zhou et al. 2023). The loose verdict forgives an opening
 * line, a closing line and markdown's asterisks; the strict one does not.
 *
 *     followed([{ id: 'punctuation:no_comma', settings: {} }], 'No commas here.');   // { strict: [true], loose: [true] }
 */
import { suggestion, UserError } from '../../errors.ts';
import { type Check, contentChecks } from './content.ts';
import { isInLanguage, tellsLanguage } from './language.ts';
import { layoutChecks } from './layout.ts';
import type { Settings } from './settings.ts';

const byLanguage = 'language:response_language';
const checks: Readonly<Record<string, Check>> = {
  ...contentChecks,
  ...layoutChecks,
  [byLanguage]: isInLanguage,
};

/** An instruction: the name of its check, and the check's settings. */
export interface Instruction {
  id: string;
  settings: Settings;
}

/** The names of the instructions that can be checked. */
export const instructionNames: readonly string[] = Object.keys(checks);

/** Whether code can check this instruction. Languages are checked only if they have a script of their own. */
export const isCheckable = ({ id, settings }: Instruction): boolean =>
  Object.hasOwn(checks, id) && (id !== byLanguage || tellsLanguage(settings));

/** Describes an instruction that code cannot check, by name and, for languages, by the language. */
export const describeUndecidable = ({ id, settings }: Instruction): string =>
  id === byLanguage && typeof settings.language === 'string' ? `${id} ${settings.language}` : id;

/** For each instruction, whether the response follows it; an empty response follows none. */
export function followed(
  instructions: readonly Instruction[],
  response: string,
): { strict: boolean[]; loose: boolean[] } {
  for (const { id } of instructions)
    if (!Object.hasOwn(checks, id))
      throw new UserError(`There is no instruction "${id}".${suggestion(id, instructionNames)}`);
  const variants = looseVariants(response);
  const follows = ({ id, settings }: Instruction, variant: string) =>
    variant.trim() !== '' && (checks[id] as Check)(variant, settings);
  return {
    strict: instructions.map((instruction) => follows(instruction, response)),
    loose: instructions.map((instruction) => variants.some((variant) => follows(instruction, variant))),
  };
}

/** The response without its first line, its last line, or both, each with and without asterisks. */
function looseVariants(response: string): string[] {
  const lines = response.split('\n');
  const cut = [lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)].map((kept) => kept.join('\n').trim());
  return [response, ...cut].flatMap((variant) => [variant, variant.replaceAll('*', '')]);
}
