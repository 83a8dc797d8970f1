import { Resvg } from '@resvg/resvg-js';
import { describe, expect, it } from 'vitest';
import { fontFamily, fontFile } from './font.ts';
import { type Axis, inPercent, scaleOf, short } from './scale.ts';
import { shortened, textWidth } from './text.ts';

const ticks = (low: number, high: number, axis: Axis = {}) => scaleOf(axis, low, high).ticks.map(({ text }) => text);

describe('ticks', () => {
  it('stand at 1, 2 or 5 times a power of ten, with as many decimals as tell them apart', () => {
    expect(ticks(0, 6)).toEqual(['0', '1', '2', '3', '4', '5', '6']);
    expect(ticks(0.61, 0.69)).toEqual(['0.61', '0.62', '0.63', '0.64', '0.65', '0.66', '0.67', '0.68', '0.69']);
    expect(ticks(-1, 1)).toEqual(['−1.0', '−0.5', '0.0', '0.5', '1.0']);
    expect(ticks(0, 30_000)).toEqual(['0', '5,000', '10,000', '15,000', '20,000', '25,000', '30,000']);
    expect(ticks(0, 3e6)).toEqual(['0', '0.5M', '1.0M', '1.5M', '2.0M', '2.5M', '3.0M']);
    expect(ticks(0, 8e-7)).toEqual(['0', '1e-7', '2e-7', '3e-7', '4e-7', '5e-7', '6e-7', '7e-7', '8e-7']);
    expect(ticks(12_300_000, 12_300_200)).toEqual([
      '12,300,000',
      '12,300,050',
      '12,300,100',
      '12,300,150',
      '12,300,200',
    ]);
    expect(ticks(1e-5, 1.002e-5)).toEqual(['1e-5', '1.0005e-5', '1.001e-5', '1.0015e-5', '1.002e-5']);
    expect(ticks(0, 0.0003, { percent: true })).toEqual([
      '0.000%',
      '0.005%',
      '0.010%',
      '0.015%',
      '0.020%',
      '0.025%',
      '0.030%',
    ]);
    expect(scaleOf({}, 0, 0.7).ticks.map(({ at }) => at)).toEqual([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]);
  });

  it('are whole numbers for steps', () => {
    expect(ticks(1, 3, { whole: true })).toEqual(['1', '2', '3']);
    expect(ticks(1, 1, { whole: true })).toEqual(['1']);
  });

  it('of a logarithmic axis are the powers of ten, and 2 and 5 times them where there are few', () => {
    expect(ticks(0.01, 1000, { log: true })).toEqual(['0.01', '0.1', '1', '10', '100', '1,000']);
    expect(ticks(0.3, 0.8, { log: true, nice: true })).toEqual(['0.2', '0.5', '1']);
    expect(ticks(0.02, 0.9, { log: true })).toEqual(['0.03', '0.1', '0.3']);
    expect(ticks(1e-30, 1e30, { log: true })).toHaveLength(8);
  });
});

describe('the ends of an axis', () => {
  const ends = (axis: Axis, low: number, high: number) => {
    const { of } = scaleOf(axis, low, high);
    // The value at a given share of the axis, which is linear.
    const [zero, one] = [of(0), of(1)];
    return [0, 1].map((share) => Math.round(((share - zero) / (one - zero)) * 1e9) / 1e9 || 0);
  };

  it('are those of the data, moved out to a tick, or given', () => {
    expect(ends({}, 0.13, 0.87)).toEqual([0.13, 0.87]);
    expect(ends({ nice: true }, 0.13, 0.87)).toEqual([0.1, 0.9]);
    expect(ends({ nice: true }, 0, 1)).toEqual([0, 1]);
    // With steps of 0.1 the axis would end at 0.9, and that axis gets steps of 0.2.
    expect(ends({ nice: true }, 0.02, 0.83)).toEqual([0, 1]);
    expect(ends({ nice: true, ends: [0, undefined] }, 0.13, 0.87)).toEqual([0, 1]);
    expect(ends({ ends: [undefined, 200] }, 1, 100)).toEqual([1, 200]);
    expect(ends({ ends: [3, 0] }, 0, 1)).toEqual([3, 0]);
  });

  it('leave room around a value that stands alone, and are 0 and 1 where there is none', () => {
    expect(ends({}, 5, 5)).toEqual([4.75, 5.25]);
    expect(ends({}, 0, 0)).toEqual([-0.5, 0.5]);
    expect(ends({}, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY)).toEqual([0, 1]);
  });

  it('and the ticks are few and finite for any numbers', () => {
    const numbers = [0, 1, -1, 1 + 1e-15, 1e-300, 5e-324, 1e300, -1.7e308, 1.7e308, 0.1, 123456789.123, 2 ** 53];
    for (const low of numbers)
      for (const high of numbers.filter((value) => value >= low))
        for (const axis of [{}, { nice: true }, { whole: true }, { log: true }, { log: true, nice: true }]) {
          if ('log' in axis && low <= 0) continue;
          const scale = scaleOf(axis, low, high);
          expect(scale.ticks.length).toBeLessThan(40);
          for (const { at, text } of scale.ticks) {
            expect(text).not.toMatch(/NaN|Infinity/);
            expect(Number.isFinite(scale.of(at))).toBe(true);
          }
        }
  });
});

describe('numbers', () => {
  it('are written in three digits', () => {
    const written = [0, 1, -1, 0.5, 1 / 3, 1234.5, 12_345, 999_499.7, 999_999.9, 2.5e6, 1.25e9, 3e12, 4.56e-5, -1e-12];
    expect(written.map(short)).toEqual(
      ['0', '1', '−1', '0.5', '0.333', '1,235', '12,345', '999,500', '1M', '2.5M', '1.25G', '3e12'].concat([
        ...['4.56e-5', '−1e-12'],
      ]),
    );
    // Rounded to three digits, these become the next power of ten.
    const close = [0.9996, 9.996, 999.7, -999.6, 999_700_000, 999.7e9];
    expect(close.map(short)).toEqual(['1', '10', '1,000', '−1,000', '1G', '1e12']);
  });

  it('are written in percent, without zeros that say nothing', () => {
    expect([0, 0.5, 0.1234, -0.00001, -0.02, 1].map(inPercent(1))).toEqual(['0%', '50%', '12.3%', '0%', '−2%', '100%']);
    expect([0.5, 1].map(inPercent(0))).toEqual(['50%', '100%']);
  });
});

describe('text', () => {
  it('has the width that it is drawn with', () => {
    for (const text of ['HHHHHHHHHH', 'illillilli', 'MWMWMWMWMW', '−1,234.56', 'Größenänderung', 'ΔΣαβ≤≈']) {
      const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="200"><text y="100" font-size="100">${text}</text></svg>`;
      const font = { fontFiles: [fontFile], loadSystemFonts: false, defaultFontFamily: fontFamily };
      const ink = new Resvg(svg, { font }).getBBox();
      // The ink ends slightly before the last letter's advance.
      const drawn = (ink?.x ?? 0) + (ink?.width ?? 0);
      expect(Math.abs(textWidth(text, 100) - drawn)).toBeLessThan(25);
    }
    expect(textWidth('HHHH', 20)).toBeCloseTo(2 * textWidth('HH', 20), 9);
  });

  it('that is too long ends with a sign', () => {
    expect(shortened('short', 11, 100)).toBe('short');
    const cut = shortened('a very long name of a source', 11, 80);
    expect(cut).toMatch(/^a very.*[^ ]…$/);
    expect(textWidth(cut, 11)).toBeLessThanOrEqual(80);
  });
});
