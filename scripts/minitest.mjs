/**
 * Stands in for `vitest` in the bundle, where the engine's tests run without it: vitest's names over node:test, and the
 * matchers that those tests use. `./attune test` runs them.
 */

import { AssertionError } from 'node:assert';
import * as runner from 'node:test';
import { format, inspect, isDeepStrictEqual } from 'node:util';

/** vitest's (name, body, timeout | options) as node:test's (name, options, body). */
function arranged(define) {
  return (name, body, extra) =>
    define(String(name), typeof extra === 'number' ? { timeout: extra } : (extra ?? {}), body && (() => body()));
}

function withEach(define) {
  const run = arranged(define);
  run.each = (rows) => (name, body, extra) => {
    for (const [index, row] of rows.entries()) {
      const values = Array.isArray(row) ? row : [row];
      run(titleOf(name, index, values), () => body(...values), extra);
    }
  };
  return run;
}

/** `it` and `describe`; `skipIf(condition)` gives the one that runs, or one that names what it leaves out. */
function withSkip(define) {
  const run = withEach(define);
  const left = withEach(define.skip);
  run.skip = left;
  run.skipIf = (condition) => (condition ? left : run);
  run.runIf = (condition) => (condition ? run : left);
  return run;
}

/** vitest's names of rows: `%s` and the like take the values in turn, `%#` the row's number, `$key` a field of an object. */
function titleOf(name, index, values) {
  const [first] = values;
  const filled = name
    .replaceAll('%#', String(index))
    .replaceAll(/\$(\w+)/g, (whole, key) => (Object(first) === first && key in first ? String(first[key]) : whole));
  return format(filled, ...values.slice(0, filled.match(/%[sdifjoO]/g)?.length ?? 0));
}

export const describe = withSkip(runner.describe);
export const it = withSkip(runner.it);
export const test = it;
export const beforeAll = (body, timeout) => runner.before(() => body(), timeout ? { timeout } : {});
export const afterAll = (body, timeout) => runner.after(() => body(), timeout ? { timeout } : {});
export const beforeEach = (body) => runner.beforeEach(() => body());
export const afterEach = (body) => runner.afterEach(() => body());

/** A value with a test of its own, such as expect.stringMatching(…), inside an expected one. */
class Asymmetric {
  constructor(accepts, description) {
    this.accepts = accepts;
    this.description = description;
  }
  [inspect.custom]() {
    return this.description;
  }
}

/** Deep equality; `loose` treats keys that are undefined as absent, as toEqual does, and `partial` allows further keys. */
function same(actual, expected, { loose = true, partial = false } = {}) {
  if (expected instanceof Asymmetric) return expected.accepts(actual);
  const plain = (value) =>
    value !== null && typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value));
  if (Array.isArray(expected) && Array.isArray(actual)) {
    return (
      expected.length === actual.length &&
      expected.every((item, index) => same(actual[index], item, { loose, partial }))
    );
  }
  if (plain(expected) && actual !== null && typeof actual === 'object' && (partial || plain(actual))) {
    const keys = partial ? Object.keys(expected) : [...new Set([...Object.keys(expected), ...Object.keys(actual)])];
    const present = (key) => loose || (key in expected && key in actual);
    return keys.every((key) => present(key) && same(actual[key], expected[key], { loose, partial }));
  }
  return isDeepStrictEqual(actual, expected);
}

/** Whether what was thrown is what was wanted: any, a class, or a message by text or pattern. */
function fitsError(error, wanted) {
  if (wanted === undefined) return true;
  if (typeof wanted === 'function') return error instanceof wanted;
  if (wanted instanceof RegExp) return wanted.test(error?.message ?? String(error));
  if (typeof wanted === 'string') return (error?.message ?? String(error)).includes(wanted);
  return same(error, wanted, { partial: true });
}

function throws(body, wanted) {
  try {
    body();
  } catch (error) {
    return fitsError(error, wanted);
  }
  return false;
}

const matchers = {
  toBe: (actual, expected) => Object.is(actual, expected),
  toEqual: (actual, expected) => same(actual, expected),
  toStrictEqual: (actual, expected) => same(actual, expected, { loose: false }),
  toMatchObject: (actual, expected) => same(actual, expected, { partial: true }),
  toBeCloseTo: (actual, expected, digits = 2) => actual === expected || Math.abs(actual - expected) < 10 ** -digits / 2,
  toBeGreaterThan: (actual, limit) => actual > limit,
  toBeGreaterThanOrEqual: (actual, limit) => actual >= limit,
  toBeLessThan: (actual, limit) => actual < limit,
  toBeLessThanOrEqual: (actual, limit) => actual <= limit,
  toBeDefined: (actual) => actual !== undefined,
  toBeUndefined: (actual) => actual === undefined,
  toBeNull: (actual) => actual === null,
  toBeNaN: (actual) => Number.isNaN(actual),
  toBeTruthy: (actual) => Boolean(actual),
  toBeFalsy: (actual) => !actual,
  toBeInstanceOf: (actual, type) => actual instanceof type,
  toBeTypeOf: (actual, type) => typeof actual === type,
  toHaveLength: (actual, length) => actual?.length === length,
  toHaveProperty: (actual, key, ...value) => {
    const path = Array.isArray(key) ? key : key.split('.');
    let holder = actual;
    for (const part of path) {
      if (holder === null || holder === undefined || !(part in Object(holder))) return false;
      holder = holder[part];
    }
    return value.length === 0 || same(holder, value[0]);
  },
  toContain: (actual, item) => (typeof actual === 'string' ? actual.includes(item) : [...actual].includes(item)),
  toContainEqual: (actual, item) => [...actual].some((each) => same(each, item)),
  toMatch: (actual, wanted) => (wanted instanceof RegExp ? wanted.test(actual) : String(actual).includes(wanted)),
  toSatisfy: (actual, accepts) => Boolean(accepts(actual)),
  toThrow: throws,
  toThrowError: throws,
};

export function expect(actual, message) {
  return matchersFor(actual, message, false);
}

function check(name, passed, negated, actual, args, message) {
  if (passed !== negated) return;
  const words = `expected ${inspect(actual, { depth: 4 })} ${negated ? 'not ' : ''}${name} ${args.map((arg) => inspect(arg, { depth: 4 })).join(', ')}`;
  throw new AssertionError({
    message: message ? `${message}: ${words}` : words,
    actual,
    expected: args[0],
    stackStartFn: check,
  });
}

function matchersFor(actual, message, negated) {
  const entries = Object.entries(matchers).map(([name, matches]) => [
    name,
    (...args) => check(name, matches(actual, ...args), negated, actual, args, message),
  ]);
  const all = Object.fromEntries(entries);
  if (!negated) all.not = matchersFor(actual, message, true);
  all.resolves = settled(actual, message, negated, (promise) => promise);
  // What a promise was rejected with is matched as a value; for toThrow it is what was thrown.
  all.rejects = settled(actual, message, negated, (promise) =>
    promise.then(
      (value) => Promise.reject(new AssertionError({ message: `expected a rejection, got ${inspect(value)}` })),
      (error) => error,
    ),
  );
  return all;
}

function settled(actual, message, negated, settle) {
  return new Proxy(
    {},
    {
      get: (_, name) => {
        if (name === 'not') return settled(actual, message, !negated, settle);
        return async (...args) => {
          const value = await settle(Promise.resolve(typeof actual === 'function' ? actual() : actual));
          const passed = name.startsWith('toThrow') ? fitsError(value, args[0]) : matchers[name](value, ...args);
          check(String(name), passed, negated, value, args, message);
        };
      },
    },
  );
}

expect.fail = (message = 'expect.fail()') => {
  throw new AssertionError({ message });
};
expect.any = (type) =>
  new Asymmetric((value) => value instanceof type || Object(value) instanceof type, `any ${type.name}`);
expect.anything = () => new Asymmetric((value) => value !== null && value !== undefined, 'anything');
expect.closeTo = (number, digits = 2) =>
  new Asymmetric((value) => matchers.toBeCloseTo(value, number, digits), `close to ${number}`);
expect.stringMatching = (pattern) =>
  new Asymmetric((value) => matchers.toMatch(value, pattern), `a string matching ${pattern}`);
expect.stringContaining = (part) =>
  new Asymmetric((value) => String(value).includes(part), `a string containing ${part}`);
expect.objectContaining = (part) =>
  new Asymmetric((value) => same(value, part, { partial: true }), `an object containing ${inspect(part)}`);
expect.arrayContaining = (items) =>
  new Asymmetric(
    (value) => items.every((item) => value.some((each) => same(each, item))),
    `an array containing ${inspect(items)}`,
  );
