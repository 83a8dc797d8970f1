import { describe, expect, it } from 'vitest';
import { append, curvesOf } from './curves.ts';
import { parseEvent } from './events.ts';

const series = { y: [1, 2], step: [1, 2], last: 2, min: 1, max: 2 };

describe('curves', () => {
  it('count time from the first row of the run', () => {
    const run = curvesOf({
      x: 'time',
      lastStep: 2,
      rows: 2,
      series: [
        { ...series, name: 'train/loss', x: [5000, 7000] },
        { ...series, name: 'eval/loss', x: [6000, 7000] },
      ],
    });
    expect(run.curves.get('train/loss')?.x).toEqual([0, 2]);
    expect(run.curves.get('eval/loss')?.x).toEqual([1, 2]);
    expect(append(run, 'time', { step: 3, time: 9000, 'train/loss': 3 })).toBe(true);
    expect(run.curves.get('train/loss')).toEqual({ x: [0, 2, 4], y: [1, 2, 3], step: [1, 2, 3] });
  });

  it('grow by new rows, and take none twice', () => {
    const run = curvesOf({ x: 'step', lastStep: 2, rows: 2, series: [{ ...series, name: 'a', x: [1, 2] }] });
    append(run, 'step', { step: 2, time: 0, a: 9 });
    append(run, 'step', { step: 3, time: 0, a: null, b: 4 });
    expect(run.curves.get('a')).toEqual({ x: [1, 2, 3], y: [1, 2, null], step: [1, 2, 3] });
    expect(run.curves.get('b')?.y).toEqual([4]);
    expect(run.lastStep).toBe(3);
    expect(append(run, 'tokens', { step: 4, time: 0 })).toBe(false);
  });
});

describe('events', () => {
  it.each([
    ['event: token\ndata: {"text":"a\\nb"}', { event: 'token', data: { text: 'a\nb' } }],
    ['id: 4\ndata: [1,\ndata: 2]', { event: 'message', data: [1, 2] }],
    [': beat', undefined],
  ])('%j', (text, expected) => expect(parseEvent(text)).toEqual(expected));
});
