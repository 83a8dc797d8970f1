import { describe, expect, it } from 'vitest';
import { ago, bytes, count, duration, exact, percent, short } from './numbers.ts';

describe('numbers for people', () => {
  it.each([
    [0, '0'],
    [0.123456, '0.123'],
    [-0.5, '−0.5'],
    [12.345, '12.3'],
    [1234.5, '1230'],
    [12_345, '12,300'],
    [1_234_567, '1,230,000'],
    [2.1e-6, '2.1e-6'],
    [1e-5, '1e-5'],
    [-3e-7, '−3e-7'],
    [5e12, '5e12'],
    [Number.NaN, '–'],
    [Number.NEGATIVE_INFINITY, '−∞'],
  ])('%d is %s', (value, text) => expect(short(value)).toBe(text));

  it.each([
    [0.95, '95 %'],
    [0.9543, '95.4 %'],
    [1, '100 %'],
    [0.01234, '1.23 %'],
    [0, '0 %'],
    [0.9996, '100 %'],
  ])('the share %d is %s', (value, text) => expect(percent(value)).toBe(text));

  it('counts whole, sizes and times with units', () => {
    expect([count(1_234_567), count(2.5)]).toEqual(['1,234,567', '2.5']);
    expect([bytes(12), bytes(2048), bytes(1.5 * 2 ** 30), bytes(1023)]).toEqual([
      '12 B',
      '2 KiB',
      '1.5 GiB',
      '0.999 KiB',
    ]);
    expect([0.25, 42, 75, 3600, 90_061].map(duration)).toEqual(['250 ms', '42 s', '1 min 15 s', '1 h', '1 d 1 h']);
  });

  it('says how long ago', () => {
    const now = Date.parse('2026-05-02T12:00:00Z');
    const before = (seconds: number) => ago(now - 1000 * seconds, now);
    expect([10, 60, 58 * 60, 7200, 86_400 * 3, 86_400 * 400].map(before)).toEqual([
      'just now',
      '1 min ago',
      '1 h ago',
      '2 h ago',
      '3 days ago',
      '1 year ago',
    ]);
    expect(ago('nonsense', now)).toBe('–');
  });

  it('keeps every digit where asked', () => expect(exact(-0.1234567890123)).toBe('−0.1234567890123'));
});
