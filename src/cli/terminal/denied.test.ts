import { expect, it } from 'vitest';
import { deniedWords } from './denied.ts';

const refusal = (code: string, syscall: string, path?: string) =>
  Object.assign(new Error(`${code}: permission denied, ${syscall} '${path}'`), { code, syscall, path });

it('says what cannot be read or written, and leaves other errors alone', () => {
  expect(deniedWords(refusal('EACCES', 'scandir', 'runs'))).toBe('runs: no permission to read it.');
  expect(deniedWords(refusal('EPERM', 'mkdir', 'runs/a'))).toBe('runs/a: no permission to write there.');
  // A file that can be read, or is not there, was to be written.
  expect(deniedWords(refusal('EACCES', 'open', 'package.json'))).toBe('package.json: no permission to write there.');
  expect(deniedWords(refusal('EACCES', 'open', 'src/new.part'))).toBe('src: no permission to write there.');
  // Below a file, so not to be read by anyone.
  expect(deniedWords(refusal('EACCES', 'open', 'package.json/x'))).toBe('package.json/x: no permission to read it.');
  expect(deniedWords(refusal('EROFS', 'open', 'run/tags.json.7.part'))).toBe('run: the file system is read-only.');
  for (const other of [refusal('ENOENT', 'open', 'x'), refusal('EACCES', 'bind'), new Error('EACCES'), 'EACCES', null])
    expect(deniedWords(other)).toBeUndefined();
});
