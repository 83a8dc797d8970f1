/** Numbers as they stand on a command line. */
import { UserError } from '../../errors.ts';

export function wholeNumber(flag: string, text: string, least = 0): number {
  const number = Number(text);
  if (text.trim() !== '' && Number.isSafeInteger(number) && number >= least) return number;
  const bound = least === Number.MIN_SAFE_INTEGER ? '' : ` of ${least} or more`;
  throw new UserError(`${flag} must be a whole number${bound}, not "${text}".`);
}

/** `1,2,3` */
export function wholeNumbers(flag: string, text: string, least = 0): number[] {
  return text.split(',').map((number) => wholeNumber(flag, number, least));
}

export function anyNumber(flag: string, text: string): number {
  const number = Number(text);
  if (text.trim() !== '' && Number.isFinite(number)) return number;
  throw new UserError(`${flag} must be a number, not "${text}".`);
}
