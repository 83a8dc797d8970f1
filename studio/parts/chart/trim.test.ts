import { describe, expect, it } from 'vitest';
import { trimOf } from './trim.ts';

const series = (y: (number | null)[]) => ({
  label: '',
  color: '',
  x: y.map((_, i) => i),
  y,
  step: y.map((_, i) => i + 1),
});
const ramp = Array.from({ length: 60 }, (_, i) => i / 60);

describe('trimming', () => {
  it('leaves out a spike far above the rest, and names it', () => {
    const spiked = series([0, null, 0.5, 320, ...ramp]);
    expect(trimOf([spiked], 'far')).toEqual({ low: 0, high: 59 / 60, top: { value: 320, step: 4, series: spiked } });
  });

  it('keeps what is only a little higher, and a curve that is flat but for a few values', () => {
    expect(trimOf([series([8, ...ramp])], 'far')).toBeUndefined();
    expect(trimOf([series([8, ...ramp.map(() => 0)])], 'far')).toBeUndefined();
    expect(trimOf([series(ramp), series([...ramp, 1.5])], 'far')).toBeUndefined();
  });

  it('keeps ordinary values above the 95th percentile beside a spike', () =>
    expect(trimOf([series([900, 2.5, ...ramp])], 'far')?.high).toBe(2.5));

  it('leaves out the outermost values at each end where that is asked for', () => {
    const { low, high } = trimOf([series([900, null, ...ramp, -50])], 'outer') ?? {};
    expect([low, high]).toEqual([1 / 60, 58 / 60]);
  });

  it('leaves few values, and all of them, alone', () => {
    expect(trimOf([series([1, 300])], 'outer')).toBeUndefined();
    expect(trimOf([], 'far')).toBeUndefined();
    expect(trimOf([series([900, ...ramp])], 'none')).toBeUndefined();
  });
});
