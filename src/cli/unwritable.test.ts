import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-unwritable-'));
const text = join(folder, 'text.txt');
writeFileSync(text, 'some text\n');
const tiny = join(import.meta.dirname, '../../models/tiny');
afterAll(() => rmSync(folder, { recursive: true }));

it.each([
  ['--out', 'tasks', 'generate', '--kind', 'sft', '--tasks', 'gcd:1', '--count', '2'],
  ['--out', 'tokenizer', 'train', '--files', text, '--vocab-size', '300'],
  ['--out', 'score', '--checkpoint', tiny, text],
  ['--output', 'preferences', 'build', '--model', tiny, '--task', 'gcd:1'],
  ['--out', 'export', 'gguf', '--model', tiny, '--type', 'f32'],
  ['--output-dir', 'explore', text],
  ['--output-dir', 'quantize', 'policy', '--model', tiny, '--task', 'gcd:1'],
  ['--output-dir', 'evaluate', 'policy', '--model', tiny, '--task', 'gcd:1'],
])('%s below a file: %s %s refuses it by the option, with exit code 2', async (option, ...command) => {
  const { code, err } = await attune(...command, option, join(text, 'out.gguf'));
  expect([code, err]).toEqual([2, expect.stringMatching(new RegExp(`${option} .* cannot be written: .* is a file`))]);
});

it.runIf(existsSync('/dev/full'))('a full disk is named with the option, too', async () => {
  const { code, err } = await attune(
    ...['tasks', 'generate', '--kind', 'sft', '--tasks', 'gcd:1', '--count', '2', '--out', '/dev/full'],
  );
  expect([code, err]).toEqual([2, 'attune: --out /dev/full cannot be written: the disk is full.\n']);
});
