/**
 * Which instructions of a prompt a response follows (IFEval, Zhou et al. 2023): strictly, and loosely, where a response may
 * have an opening line, a closing line, or markdown's asterisks that the instruction does not speak of.
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

/** The names of the instructions that code decides here. */
export const instructionNames: readonly string[] = Object.keys(checks);

/** Whether code can decide this instruction. Of languages it decides those that have a script of their own. */
export const isCheckable = ({ id, settings }: Instruction): boolean =>
  Object.hasOwn(checks, id) && (id !== byLanguage || tellsLanguage(settings));

/** An instruction that code cannot decide, by name; of languages, which one was asked for. */
export const describeUndecidable = ({ id, settings }: Instruction): string =>
  id === byLanguage && typeof settings.language === 'string' ? `${id} ${settings.language}` : id;

/** For each of the instructions, whether the response follows it; an empty response follows none. */
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

/** The response, without its first line, its last line, or both; each also without asterisks. */
function looseVariants(response: string): string[] {
  const lines = response.split('\n');
  const cut = [lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)].map((kept) => kept.join('\n').trim());
  return [response, ...cut].flatMap((variant) => [variant, variant.replaceAll('*', '')]);
}
