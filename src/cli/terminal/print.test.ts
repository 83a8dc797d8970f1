import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { consoleProgress } from './console.ts';
import { jsonLine, print, tell, visible } from './print.ts';

afterEach(() => vi.restoreAllMocks());

describe('visible', () => {
  it.each([
    ['a clipboard', '\u001b]52;c;cm0gLXJm\u0007', '␛]52;c;cm0gLXJm␇'],
    ['colours and moves', '\u001b[2J\u001b[31mred', '␛[2J␛[31mred'],
    ['the second set of controls', '\u009b31m\u0085\u007f', '\\u009b31m\\u0085\\u007f'],
    ['a line that is overwritten', 'real\rfake', 'real␍fake'],
    ['backspaces and NUL', 'a\b\0', 'a␈␀'],
  ])('shows %s and does not obey', (_, text, shown) => expect(visible(text)).toBe(shown));

  it('leaves text alone', () => {
    const text = 'One\n\ttwo\r\nthree — ünïcödé 漢字 🙂 עברית';
    expect(visible(text)).toBe(text);
  });
});

it('writes JSON whose controls are escapes and whose value is the same', () => {
  const value = { text: '\u001b]0;x\u0007\u009b1m\u007f' };
  expect(jsonLine(value)).not.toMatch(/\p{Cc}/u);
  expect(JSON.parse(jsonLine(value))).toEqual(value);
});

it('writes lines above a progress line that is being drawn, never into it', () => {
  const screen: string[] = [];
  const stream = { write: (text: string) => void screen.push(text), isTTY: true, columns: 80 };
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => screen.push(String(text)) > 0);
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => screen.push(String(text)) > 0);
  const task = consoleProgress({ stream, now: () => 0 }).start('training', 10, 'steps');
  screen.length = 0;
  print('held-out loss 0.5');
  expect(screen).toEqual(['\r\u001b[2K', 'held-out loss 0.5\n', expect.stringContaining('\u001b[2Ktraining')]);
  task.done();
  screen.length = 0;
  tell('after it');
  expect(screen).toEqual(['after it\n']);
});

it('is the only way that commands print', () => {
  const folder = join(import.meta.dirname, '..');
  const sources = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts') && path !== join('terminal', 'print.ts'))
    // a program of its own, whose output only the doctor reads
    .filter((path) => path !== join('machine', 'probe.ts'));
  const printing = sources.filter((path) =>
    /console\.(log|error|warn|info)\b|process\.(stdout|stderr)\.write/.test(readFileSync(join(folder, path), 'utf8')),
  );
  expect(printing).toEqual([]);
});
