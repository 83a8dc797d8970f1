/**
 * Equal lists of numbers are found equal by Node, much sooner: vitest makes a string of every index. Lists that
 * differ are left to vitest, which says how.
 */
import { isDeepStrictEqual } from 'node:util';
import { expect } from 'vitest';

const isNumbers = (value: unknown) =>
  ArrayBuffer.isView(value) || (Array.isArray(value) && value.length > 0 && typeof value[0] === 'number');

export function equalNumbers(a: unknown, b: unknown): true | undefined {
  return isNumbers(a) && isNumbers(b) && isDeepStrictEqual(a, b) ? true : undefined;
}

// Files that share a process share the list of testers.
const mark = globalThis as { attuneEquality?: true };
if (!mark.attuneEquality) expect.addEqualityTesters([equalNumbers]);
mark.attuneEquality = true;
