import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Follower } from './console.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-console-'));
afterAll(() => rmSync(folder, { recursive: true }));

it('gives whole lines as they are added', () => {
  const path = join(folder, 'a.log');
  writeFileSync(path, 'before\n');
  const added = new Follower(path);
  appendFileSync(path, 'one\nhalf');
  expect(added.next()).toEqual(['one']);
  appendFileSync(path, ' a line\n');
  expect(added.next()).toEqual(['half a line']);
  expect(added.next()).toEqual([]);
  writeFileSync(path, 'anew\n');
  expect(added.next()).toEqual(['anew']);
});

it('goes on after a line that is longer than what is read at once', () => {
  const path = join(folder, 'b.log');
  writeFileSync(path, `${'x'.repeat(3 << 20)}\nafter\n`);
  const added = new Follower(path, 'start');
  const lines = Array.from({ length: 5 }, () => added.next()).flat();
  expect(lines.join('').length).toBe((3 << 20) + 'after'.length);
  expect(lines.at(-1)).toBe('after');
});
