import { expect, it } from 'vitest';
import { checkRoom, sizeText } from './room.ts';

it('refuses whole weights that do not fit, with the numbers', () => {
  expect(() => checkRoom(1000, 'cpu')).not.toThrow();
  expect(() => checkRoom(16 * 2 ** 30, 'cuda:1', 3.5 * 2 ** 30)).toThrow(
    /whole weights on every rank, 16\.00 GiB, and 3\.50 GiB are free on cuda:1/,
  );
  expect(() => checkRoom(2 ** 60, 'cpu')).toThrow(/free on cpu/);
});

it('says small amounts in MiB', () => {
  expect([2 ** 34, 2 ** 30, 357_000_000, 400_000].map(sizeText)).toEqual([
    '16.00 GiB',
    '1.00 GiB',
    '340 MiB',
    '0.4 MiB',
  ]);
});
