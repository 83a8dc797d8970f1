/** The stand-in for vitest in the bundle must agree with vitest: each case is tried with both. */
import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
// @ts-expect-error plain JavaScript without types
import * as minitest from '../scripts/minitest.mjs';

const { expect: mini } = minitest;
const root = join(import.meta.dirname, '..');

type Expect = typeof expect;
const cases: [name: string, assertion: (expect: Expect) => unknown, passes: boolean][] = [
  ['the same object', (e) => e(1).toBe(1), true],
  ['zero and minus zero', (e) => e(0).toBe(-0), false],
  ['equal objects', (e) => e({ a: [1, { b: 2 }] }).toEqual({ a: [1, { b: 2 }] }), true],
  ['an undefined key', (e) => e({ a: 1, b: undefined }).toEqual({ a: 1 }), true],
  ['an undefined key, strictly', (e) => e({ a: 1, b: undefined }).toStrictEqual({ a: 1 }), false],
  ['a further key', (e) => e({ a: 1, b: 2 }).toEqual({ a: 1 }), false],
  ['part of an object', (e) => e({ a: 1, b: { c: 2, d: 3 } }).toMatchObject({ b: { c: 2 } }), true],
  ['typed arrays', (e) => e(new Float32Array([1, 2])).toEqual(new Float32Array([1, 2])), true],
  ['typed arrays that differ', (e) => e(new Float32Array([1, 2])).toEqual(new Float32Array([1, 3])), false],
  ['maps', (e) => e(new Map([['a', 1]])).toEqual(new Map([['a', 1]])), true],
  ['close numbers', (e) => e(0.1 + 0.2).toBeCloseTo(0.3, 10), true],
  ['not so close numbers', (e) => e(0.301).toBeCloseTo(0.3, 3), false],
  [
    'a message',
    (e) =>
      e(() => {
        throw new TypeError('bad shape [2, 3]');
      }).toThrow(/shape \[2/),
    true,
  ],
  [
    'another message',
    (e) =>
      e(() => {
        throw new Error('x');
      }).toThrow('y'),
    false,
  ],
  [
    'a class of error',
    (e) =>
      e(() => {
        throw new TypeError('x');
      }).toThrow(TypeError),
    true,
  ],
  ['nothing thrown', (e) => e(() => 1).toThrow(), false],
  ['nothing thrown, as wanted', (e) => e(() => 1).not.toThrow(), true],
  ['a rejection', (e) => e(Promise.reject(new Error('gone'))).rejects.toThrow('gone'), true],
  ['a promise that keeps', (e) => e(Promise.resolve(1)).rejects.toThrow(), false],
  ['a value', (e) => e(Promise.resolve([1])).resolves.toEqual([1]), true],
  ['negation', (e) => e([1, 2]).not.toContain(2), false],
  ['length', (e) => e('abc').toHaveLength(3), true],
  ['a property', (e) => e({ a: { b: null } }).toHaveProperty('a.b', null), true],
  ['asymmetric values', (e) => e({ a: 'hello', n: 1 }).toEqual({ a: e.stringMatching(/^h/), n: e.any(Number) }), true],
  ['asymmetric values that fail', (e) => e({ a: 'hello' }).toEqual({ a: e.stringContaining('x') }), false],
];

async function outcome(assertion: (expect: Expect) => unknown, using: Expect): Promise<boolean> {
  try {
    await assertion(using);
    return true;
  } catch {
    return false;
  }
}

describe('minitest agrees with vitest on', () => {
  it.each(cases)('%s', async (_, assertion, passes) => {
    expect(await outcome(assertion, expect)).toBe(passes);
    expect(await outcome(assertion, mini)).toBe(passes);
  });
});

it('has every name that the tests in the bundle use', () => {
  // As scripts/bundle.mjs and scripts/bundle-launcher.sh choose them.
  const files = globSync(['src/{tensor,nn}/**/*.test*.ts', 'tests/cuda/**/*.ts'], { cwd: root });
  const texts = files.map((path) => readFileSync(join(root, path), 'utf8'));
  const matches = (pattern: RegExp) => texts.flatMap((text) => [...text.matchAll(pattern)]);
  const imported = matches(/import \{([^}]*)\} from 'vitest'/g).flatMap(([, names = '']) => names.split(','));
  const names = imported.map((name) => name.trim()).filter((name) => name !== '' && !name.startsWith('type '));
  expect(names.length).toBeGreaterThan(50);
  for (const name of new Set(names)) expect(minitest, name).toHaveProperty(name);
  for (const [, of = '', name = ''] of matches(/\b(it|describe|expect)\.(\w+)/g))
    expect({ it: minitest.it, describe: minitest.describe, expect: mini }).toHaveProperty([of, name]);
  for (const [, name = ''] of matches(/\.(to[A-Z]\w+)\(/g)) {
    const isMatcher = name in expect(0);
    if (isMatcher) expect(mini(0), name).toHaveProperty(name);
  }
});

it('leaves out and runs what a condition says', () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-minitest-'));
  const program = `
    import { describe, it } from ${JSON.stringify(join(root, 'scripts/minitest.mjs'))};
    it.skipIf(true)('one', () => { throw new Error('one'); });
    it.skipIf(false)('two', () => {});
    it.skipIf(false).each([1, 2])('each %i', () => {});
    it.runIf(false)('three', () => { throw new Error('three'); });
    describe.skipIf(true)('group', () => { it('inside', () => { throw new Error('inside'); }); });
  `;
  writeFileSync(join(folder, 'some.test.mjs'), program);
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const said = execFileSync(process.execPath, ['--test', '--test-reporter=tap', join(folder, 'some.test.mjs')], {
    encoding: 'utf8',
    env,
  });
  rmSync(folder, { recursive: true });
  expect(said).toMatch(/# pass 3\n# fail 0\n/);
  for (const name of ['one', 'three']) expect(said).toMatch(new RegExp(`ok \\d - ${name} # SKIP`));
});
