import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { checkOutputFile, checkOutputFolder, OutputFile } from './outputs.ts';

let folder = '';
const at = (...parts: string[]) => join(folder, ...parts);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-outputs-'));
  writeFileSync(at('input.jsonl'), 'precious\n');
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('what cannot be written is refused before the work, with the option', () => {
  it('a folder below a file, and one that no folder can be made in', () => {
    expect(() => checkOutputFolder('--output-dir', at('input.jsonl', 'x'))).toThrow(
      /^--output-dir .*input\.jsonl\/x cannot be written: .*input\.jsonl is a file\.$/,
    );
    expect(() => checkOutputFolder('--output-dir', '/proc/nope/deep')).toThrow(/--output-dir .* cannot be written/);
    expect(() => new OutputFile('--out', at('input.jsonl', 'x'))).toThrow(/--out .* cannot be written/);
    expect(() => checkOutputFile('--out', folder)).toThrow(/--out .* is a folder; name a file/);
  });

  it('leaves nothing behind where it can be', () => {
    checkOutputFolder('--output-dir', at('a', 'b', 'c'));
    expect(readdirSync(folder)).toEqual(['input.jsonl']);
  });
});

it('says what could not be written where the system only says that a disk is full', async () => {
  // Commands that this process has run before have named outputs, too.
  vi.resetModules();
  const { checkOutputFile, checkOutputFolder, diskFullWords } = await import('./outputs.ts');
  (await import('../../spelling.ts')).speakTo('command line');
  checkOutputFile('--votes', '/dev/null');
  checkOutputFolder('--output-dir', at('results'));
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
  expect(diskFullWords(full)).toMatch(/^--output-dir .* cannot be written: the disk is full\.$/);
  expect(diskFullWords(new Error('write failed: No space left on device'))).toContain('the disk is full');
  expect(diskFullWords(new Error('another'))).toBeUndefined();
});

describe('OutputFile', () => {
  it('never writes over an input, by whatever name', () => {
    symlinkSync(at('input.jsonl'), at('link.jsonl'));
    linkSync(at('input.jsonl'), at('same.jsonl'));
    mkdirSync(at('sub'));
    for (const path of ['input.jsonl', 'link.jsonl', 'same.jsonl', 'sub/../input.jsonl'])
      expect(() => new OutputFile('--out', join(folder, path), [undefined, at('input.jsonl')])).toThrow(
        /is a file that is read: an input is never written over/,
      );
    expect(readFileSync(at('input.jsonl'), 'utf8')).toBe('precious\n');
  });

  it('is there when it is whole, and not before', () => {
    writeFileSync(at('out.jsonl'), 'old\n');
    {
      using broken = new OutputFile('--out', at('out.jsonl'));
      broken.write('half');
    }
    expect([readFileSync(at('out.jsonl'), 'utf8'), readdirSync(folder).length]).toEqual(['old\n', 2]);
    using whole = new OutputFile('--out', at('new', 'out.jsonl'));
    whole.write('one\n');
    expect(existsSync(at('new', 'out.jsonl'))).toBe(false);
    whole.finish();
    expect(readFileSync(at('new', 'out.jsonl'), 'utf8')).toBe('one\n');
  });

  it('writes to a device as it is', () => {
    using out = new OutputFile('--out', '/dev/null');
    out.write('gone');
    out.finish();
    expect(existsSync('/dev/null')).toBe(true);
  });
});
