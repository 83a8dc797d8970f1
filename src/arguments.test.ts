import { expect, it } from 'vitest';
import {
  above,
  atLeast,
  checkArgument,
  checkArguments,
  either,
  filledText,
  limit,
  list,
  oneOf,
  text,
  whole,
} from './arguments.ts';
import { UserError } from './errors.ts';

const rules = { slots: whole(1), share: above(0, 1), names: list(filledText), way: oneOf(['exact', 'fast']) };
const check = (given: unknown, required: string[] = []) => checkArguments('call', given, rules, required);

it('takes what fits, and what is left out', () => {
  for (const given of [{}, { slots: undefined }, { slots: 3, share: 1, names: ['a'], way: 'fast', more: 1 }])
    check(given);
  checkArgument('x', 'a', either(text, list(text)));
  checkArgument('x', ['a'], either(text, list(text)));
  checkArgument('x', Int32Array.of(1, 2), list(whole(0, 2)));
  checkArgument('x', Number.POSITIVE_INFINITY, atLeast(0));
  checkArgument('x', Number.POSITIVE_INFINITY, limit(1));
});

it.each([
  [undefined, 'call takes an object with slots, share, names, way, not undefined.'],
  ['abc', 'call takes an object with slots, share, names, way, not "abc".'],
  [{ slots: 1.5 }, 'call: slots 1.5: expected a whole number, 1 or more.'],
  [{ slots: '4' }, 'call: slots "4": expected a whole number, 1 or more.'],
  [
    { slots: Number.NaN, share: 0 },
    'call: slots NaN: expected a whole number, 1 or more; share 0: expected a number above 0, at most 1.',
  ],
  [{ names: 'abc' }, 'call: names "abc": expected a list, each text that is not empty.'],
  [{ names: ['a', ''] }, 'call: names ["a",""]: expected a list, each text that is not empty.'],
  [{ way: 'fats' }, 'call: way "fats": expected exact or fast.'],
])('refuses %j', (given, message) => {
  expect(() => check(given)).toThrow(new UserError(message));
});

it('writes what JSON cannot', () => {
  const itself: Record<string, unknown> = {};
  itself.self = itself;
  for (const [value, written] of [
    [BigInt64Array.of(1n, 2n), 'BigInt64Array(2) [ 1n, 2n ]'],
    [[3n], '[ 3n ]'],
    [itself, '<ref *1> { self: [Circular *1] }'],
    [Symbol('a'), 'Symbol(a)'],
  ])
    expect(() => checkArgument('x', value, whole(1))).toThrow(
      new UserError(`x ${written as string}: expected a whole number, 1 or more.`),
    );
});

it('asks for what is required', () => {
  expect(() => check({ share: 1 }, ['slots'])).toThrow('call: slots is missing: expected a whole number, 1 or more.');
});
