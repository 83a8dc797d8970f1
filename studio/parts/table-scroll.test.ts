import { describe, expect, it } from 'vitest';
import { offsetOf, rowsInView, scrollFor } from './table-scroll.ts';

const small = { total: 100, rowHeight: 20, viewport: 200 };
const million = { total: 1_000_000, rowHeight: 40, viewport: 600 };

describe('a long table', () => {
  it('has only the rows in view, and some to spare', () => {
    expect(rowsInView(small, 0)).toEqual({ first: 0, last: 16, canvas: 2000 });
    expect(rowsInView(small, 1000)).toEqual({ first: 44, last: 66, canvas: 2000 });
    expect(rowsInView({ ...small, total: 0 }, 0)).toEqual({ first: 0, last: 0, canvas: 0 });
  });

  it('reaches the first and the last of a million rows', () => {
    const { canvas } = rowsInView(million, 0);
    expect(canvas).toBeLessThanOrEqual(8_000_000);
    expect(rowsInView(million, 0).first).toBe(0);
    const bottom = canvas - million.viewport;
    expect(rowsInView(million, bottom).last).toBe(1_000_000);
    // The last row ends where the canvas ends.
    expect(offsetOf(million, bottom, 999_999) + 40).toBeCloseTo(canvas, 3);
  });

  it('shows the rows where they are looked for', () => {
    for (const scrollTop of [12_345, 4_000_000]) {
      const { first } = rowsInView(million, scrollTop);
      const offset = offsetOf(million, scrollTop, first + 6);
      expect(offset - scrollTop).toBeGreaterThan(-40);
      expect(offset - scrollTop).toBeLessThanOrEqual(0);
    }
  });

  it('scrolls no more than is needed to show a row', () => {
    expect(scrollFor(small, 100, 6)).toBe(100);
    expect(scrollFor(small, 100, 2)).toBe(40);
    expect(scrollFor(small, 100, 30)).toBe(31 * 20 - 200);
    const at = scrollFor(million, 0, 500_000);
    const { first, last } = rowsInView(million, at);
    expect(first < 500_000 && 500_000 < last).toBe(true);
  });
});
