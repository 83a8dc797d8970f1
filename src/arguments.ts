/**
 * Checks of arguments that come from a program: no type checks them in JavaScript, nor behind a cast.
 *
 *     checkArguments('Sampler', options, { slots: whole(1), precision: oneOf(precisions) });
 *     // UserError: Sampler: slots 1.5: expected a whole number, 1 or more.
 */
import { inspect } from 'node:util';
import { UserError } from './errors.ts';

/** What an argument has to be. */
export interface Rule {
  fits(value: unknown): boolean;
  /** In words, after "expected". */
  wanted: string;
}

/** NaN fits no bound, and Infinity those that have no other end. */
const isNumber = (value: unknown): value is number => typeof value === 'number';

export const whole = (least = 1, most = Number.MAX_SAFE_INTEGER): Rule => ({
  fits: (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
  wanted: most === Number.MAX_SAFE_INTEGER ? `a whole number, ${least} or more` : `a whole number, ${least} to ${most}`,
});
/** A whole number, or Infinity for no limit. */
export const limit = (least = 1): Rule => ({
  fits: (value) => value === Number.POSITIVE_INFINITY || whole(least).fits(value),
  wanted: whole(least).wanted,
});
/** Any whole number. */
export const integer: Rule = { fits: Number.isSafeInteger, wanted: 'a whole number' };
export const atLeast = (least: number): Rule => ({
  fits: (value) => isNumber(value) && value >= least,
  wanted: `a number, ${least} or more`,
});
export const above = (limit: number, most = Number.POSITIVE_INFINITY): Rule => ({
  fits: (value) => isNumber(value) && value > limit && value <= most,
  wanted: `a number above ${limit}${most === Number.POSITIVE_INFINITY ? '' : `, at most ${most}`}`,
});
export const finite: Rule = { fits: Number.isFinite, wanted: 'a number' };
export const share: Rule = { fits: (value) => isNumber(value) && value >= 0 && value <= 1, wanted: 'a number, 0 to 1' };
export const text: Rule = { fits: (value) => typeof value === 'string', wanted: 'text' };
export const filledText: Rule = {
  fits: (value) => typeof value === 'string' && value !== '',
  wanted: 'text that is not empty',
};
export const flag: Rule = { fits: (value) => typeof value === 'boolean', wanted: 'true or false' };
export const call: Rule = { fits: (value) => typeof value === 'function', wanted: 'a function' };
export const signal: Rule = { fits: (value) => value instanceof AbortSignal, wanted: 'an AbortSignal' };
export const anything: Rule = { fits: () => true, wanted: 'anything' };
export const oneOf = (values: readonly string[]): Rule => ({
  fits: (value) => values.includes(value as string),
  wanted: values.join(' or '),
});
/** A list, or a typed array, of values that fit. */
export const list = (of: Rule): Rule => ({
  fits: (value) => isList(value) && Array.from(value).every(of.fits),
  wanted: of === anything ? 'a list' : `a list, each ${of.wanted}`,
});
export const either = (one: Rule, other: Rule): Rule => ({
  fits: (value) => one.fits(value) || other.fits(value),
  wanted: `${one.wanted} or ${other.wanted}`,
});
const isList = (value: unknown): value is ArrayLike<unknown> =>
  typeof value === 'object' && value !== null && Number.isInteger((value as { length?: unknown }).length);

/** Refuses an argument that is no object, and the values in it that do not fit, all at once. Values that are left out are fine unless `required`. */
export function checkArguments(
  name: string,
  given: unknown,
  rules: Readonly<Record<string, Rule>>,
  required: readonly string[] = [],
): void {
  if (typeof given !== 'object' || given === null)
    throw new UserError(`${name} takes an object with ${Object.keys(rules).join(', ')}, not ${shown(given)}.`);
  const values = given as Record<string, unknown>;
  const faults = Object.entries(rules).flatMap(([key, rule]) => {
    const value = values[key];
    if (value === undefined) return required.includes(key) ? [`${key} is missing: expected ${rule.wanted}`] : [];
    return rule.fits(value) ? [] : [fault(key, value, rule)];
  });
  if (faults.length > 0) throw new UserError(`${name}: ${faults.join('; ')}.`);
}

/** The same for one argument. */
export function checkArgument(name: string, value: unknown, rule: Rule): void {
  if (!rule.fits(value)) throw new UserError(`${fault(name, value, rule)}.`);
}

const fault = (name: string, value: unknown, { wanted }: Rule) => `${name} ${shown(value)}: expected ${wanted}`;

function shown(value: unknown): string {
  if (typeof value === 'number' || value === undefined || value === null || typeof value === 'bigint')
    return String(value);
  if (typeof value === 'function') return 'a function';
  const written = asJson(value) ?? inspect(value, { compact: true, breakLength: Number.POSITIVE_INFINITY });
  return written.length > 60 ? `${written.slice(0, 57)}...` : written;
}

/** Undefined for what JSON cannot write: bigints, symbols, objects that contain themselves. */
function asJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}
