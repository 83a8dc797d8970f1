import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from './errors.ts';
import { makeFolder } from './folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-folder-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('makeFolder', () => {
  it('makes what is missing, and takes what is there', () => {
    makeFolder(join(folder, 'a/b/c'));
    makeFolder(join(folder, 'a/b/c'));
    expect(existsSync(join(folder, 'a/b/c'))).toBe(true);
  });

  it('ends with a mistake of the user where nothing can be made', () => {
    writeFileSync(join(folder, 'file'), '');
    for (const path of ['/proc/attune/x/y', join(folder, 'file'), join(folder, 'file/below')])
      expect(() => makeFolder(path)).toThrow(UserError);
    expect(() => makeFolder('/proc/attune/x')).toThrow('nothing can be made in /proc');
    expect(() => makeFolder(join(folder, 'file/below'))).toThrow('is a file');
  });
});
