import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { appendLine, checkLineFile } from './line-file.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-lines-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('a file of lines', () => {
  it('begins a line of its own after one that lacks its end', () => {
    const path = join(folder, 'a.jsonl');
    for (const [before, after] of [
      [undefined, '{"a":1}\n'],
      ['', '{"a":1}\n'],
      ['{"b":2}\n', '{"b":2}\n{"a":1}\n'],
      ['{"b":2}', '{"b":2}\n{"a":1}\n'],
    ] as const) {
      rmSync(path, { force: true });
      if (before !== undefined) writeFileSync(path, before);
      appendLine(path, { a: 1 });
      expect(readFileSync(path, 'utf8')).toBe(after);
    }
  });

  it('refuses folders, devices, and places that are not there', () => {
    expect(() => checkLineFile('--votes', folder)).toThrow(/is a folder/);
    expect(() => checkLineFile('--votes', '/dev/zero')).toThrow(/is no file, but a device or a pipe/);
    expect(() => checkLineFile('--votes', join(folder, 'none', 'v.jsonl'))).toThrow(/there is no folder/);
    expect(() => checkLineFile('--votes', join(folder, 'a.jsonl', 'v.jsonl'))).toThrow(/is no folder/);
    checkLineFile('--votes', join(folder, 'new.jsonl'));
    checkLineFile('--votes', join(folder, 'a.jsonl'));
  });
});
