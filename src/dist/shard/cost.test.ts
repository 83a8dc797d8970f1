import { expect, it } from 'vitest';
import { type Exchanged, exchangedBytes, exchangeSeconds } from './cost.ts';

const sum = ({ allReduce, reduceScatter, allGather }: Exchanged) => allReduce + reduceScatter + allGather;
const even = (rate: number): Exchanged => ({ allReduce: rate, reduceScatter: rate, allGather: rate });

it('gives the table of the documentation: 8B on boxes of 400 GB/s inside and 50 GB/s between them', () => {
  const seconds = (shard: 'optimizer' | 'full', gpus: number, rate: number) =>
    exchangeSeconds(exchangedBytes(shard, 8e9, gpus), even(rate)).toFixed(2);
  expect([8, 64, 512].map((gpus) => seconds('optimizer', gpus, gpus === 8 ? 400e9 : 50e9))).toEqual([
    '0.11',
    '0.95',
    '0.96',
  ]);
  expect([8, 64, 512].map((gpus) => seconds('full', gpus, gpus === 8 ? 400e9 : 50e9))).toEqual([
    '0.14',
    '1.26',
    '1.28',
  ]);
});

it('counts what each mode sends', () => {
  expect(exchangedBytes('none', 1e9, 2)).toEqual({ allReduce: 4e9, reduceScatter: 0, allGather: 0 });
  expect(sum(exchangedBytes('optimizer', 2.79e9, 2))).toBeCloseTo(8.37e9, -7);
  expect(sum(exchangedBytes('full', 2.79e9, 2))).toBeCloseTo(11.16e9, -7);
});

it('takes twice as long where a collective is half as fast, as with Gloo', () => {
  const gloo = { allReduce: 0.91e9, reduceScatter: 0.455e9, allGather: 0.455e9 };
  // Measured: 17.6 and 20.0 s (docs/distributed.md).
  expect(exchangeSeconds(exchangedBytes('optimizer', 2.79e9, 2), gloo)).toBeCloseTo(18.4, 1);
});
