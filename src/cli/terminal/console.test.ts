import { describe, expect, it } from 'vitest';
import { consoleProgress, duration } from './console.ts';

function fakeConsole(isTTY: boolean, columns = 100) {
  const written: string[] = [];
  let time = 0;
  const progress = consoleProgress({
    stream: { write: (text) => written.push(text), isTTY, columns },
    now: () => time,
  });
  return { written, progress, pass: (milliseconds: number) => (time += milliseconds) };
}

describe('consoleProgress', () => {
  it('redraws one line on a terminal, with bar, rate, time left and values', () => {
    const { written, progress, pass } = fakeConsole(true);
    const task = progress.start('training', 200, 'steps');
    pass(4_000);
    task.advance(50, { loss: 0.123456 });
    expect(written.at(-1)).toBe(
      `\r\u001b[2Ktraining  █████${'░'.repeat(15)}  25%  50/200 steps  12.5/s  12 s left  loss 0.1235`,
    );
  });

  it('does not redraw more often than an eye can follow', () => {
    const { written, progress, pass } = fakeConsole(true);
    const task = progress.start('reading', 1000);
    for (let i = 0; i < 1000; i++) {
      pass(1);
      task.advance();
    }
    expect(written.length).toBeLessThanOrEqual(11);
  });

  it('never draws past the edge of the terminal', () => {
    const { written, progress, pass } = fakeConsole(true, 30);
    const task = progress.start('a rather long label for a task', 10);
    pass(1_000);
    task.advance(1, { loss: 1, accuracy: 0.5 });
    expect(written.at(-1)?.replace('\r\u001b[2K', '').length).toBeLessThanOrEqual(30);
  });

  it('writes plain lines every few seconds where there is no terminal', () => {
    const { written, progress, pass } = fakeConsole(false);
    const task = progress.start('tokenising', 100, 'rows');
    for (let i = 0; i < 11; i++) {
      pass(1_000);
      task.advance(1);
    }
    task.done();
    expect(written).toEqual([
      'tokenising  5%  5/100 rows  1/s  1 min 35 s left\n',
      'tokenising  10%  10/100 rows  1/s  1 min 30 s left\n',
      'tokenising: 11 rows in 11 s (1/s)\n',
    ]);
  });

  it('a run that goes on counts from where it was, and its rate only what is done now', () => {
    const { written, progress, pass } = fakeConsole(false);
    const task = progress.start('training', 40, 'steps', 15);
    pass(5_000);
    task.advance(5);
    expect(written).toEqual(['training  50%  20/40 steps  1/s  20 s left\n']);
  });

  it('shows the controls in labels and values, and does not obey them', () => {
    const { written, progress, pass } = fakeConsole(true);
    const task = progress.start('reading \u001b]0;x\u0007.jsonl', 10);
    pass(1_000);
    task.advance(1, { last: '\u001b[31m' });
    expect(written.at(-1)).toMatch(/^\r.\[2Kreading ␛\]0;x␇\.jsonl .*last ␛\[31m$/);
    task.done('\u001b[0m');
    expect(written.at(-1)).toContain('␛[0m');
  });

  it('counts without a total', () => {
    const { written, progress, pass } = fakeConsole(true);
    const task = progress.start('download', undefined, 'bytes');
    pass(2_000);
    task.advance(25_000_000);
    expect(written.at(-1)).toBe('\r\u001b[2Kdownload  25M bytes  12.5M/s');
    task.done('saved');
    expect(written.at(-1)).toBe('\r\u001b[2Kdownload: saved\n');
  });
});

describe('duration', () => {
  it.each([
    [0.42, '0.4 s'],
    [42.4, '42 s'],
    [185, '3 min 05 s'],
    [7_620, '2 h 07 min'],
  ])('%d seconds is %s', (seconds, text) => expect(duration(seconds)).toBe(text));
});
