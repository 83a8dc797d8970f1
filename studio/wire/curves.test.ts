import { describe, expect, it } from 'vitest';
import { append, curvesOf } from './curves.ts';
import { parseEvent } from './events.ts';

const series = { y: [1, 2], step: [1, 2], last: 2, min: 1, max: 2 };

describe('curves', () => {
  it('grow by new rows, and take none twice', () => {
    const run = curvesOf({ x: 'step', lastStep: 2, rows: 2, series: [{ ...series, name: 'a', x: [1, 2] }] });
    append(run, 'step', { step: 2, time: 0, a: 9 });
    append(run, 'step', { step: 3, time: 0, a: null, b: 4 });
    expect(run.curves.get('a')).toEqual({ x: [1, 2, 3], y: [1, 2, null], step: [1, 2, 3] });
    expect(run.curves.get('b')?.y).toEqual([4]);
    expect(run.lastStep).toBe(3);
    // Where a row does not say its place on the axis, the curves are read anew.
    for (const axis of ['tokens', 'time', 'examples'] as const)
      expect(append(run, axis, { step: 4, time: 0 })).toBe(false);
  });
});

describe('events', () => {
  it.each([
    ['event: token\ndata: {"text":"a\\nb"}', { event: 'token', data: { text: 'a\nb' } }],
    ['id: 4\ndata: [1,\ndata: 2]', { event: 'message', data: [1, 2] }],
    [': beat', undefined],
  ])('%j', (text, expected) => expect(parseEvent(text)).toEqual(expected));
});
