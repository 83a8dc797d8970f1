import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { logLines } from './log-file.ts';
import { tell } from './print.ts';

it('writes every line with its time, those before the run had a folder too', () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-log-'));
  const path = join(folder, 'train.log');
  {
    using log = logLines();
    tell('before');
    log.attach(path);
    tell('one\ntwo');
    log.add('failed: no');
  }
  tell('after');
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  rmSync(folder, { recursive: true });
  expect(lines.map((line) => line.slice(26))).toEqual(['before', 'one', 'two', 'failed: no']);
  expect(lines.every((line) => /^\d{4}-\d\d-\d\dT[\d:.]+Z {2}\S/.test(line))).toBe(true);
});
