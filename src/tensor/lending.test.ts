/** Memory that sharded training lends to tensors and takes away (native/dist/storage.cc): wrong use is an error, never a stray pointer. */
import { describe, expect, it } from 'vitest';
import { native } from './engine/native.ts';
import { aten, ones, type Tensor, zeros } from './index.ts';

const lend = (parameter: Tensor, buffer: Tensor, offset = 0) =>
  native.storageLend(parameter.live('lend'), buffer.live('lend'), offset);
const drop = (parameter: Tensor) => native.storageDrop(parameter.live('drop'));
const TAKEN = /memory was taken away/;

describe('a tensor without memory', () => {
  it('keeps its shape, is read by nobody, and is whole again with memory that is lent', () => {
    const parameter = ones([2, 3]);
    drop(parameter);
    drop(parameter); // nothing left to take
    expect(parameter.shape).toEqual([2, 3]);
    for (const use of [
      () => parameter.sum(),
      () => aten('cat', [ones([1, 3]), parameter]),
      () => parameter.add_(1),
      () => parameter.numbers(),
      () => native.item(parameter.live('item')),
      () => lend(zeros([1]), parameter),
    ])
      expect(use).toThrow(TAKEN);
    lend(parameter, zeros([8]), 8);
    expect(parameter.numbers()).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it('has parts that nobody reads either', () => {
    const parameter = ones([4]);
    const part = parameter.narrow(0, 1, 2);
    drop(parameter);
    expect(() => part.sum()).toThrow(TAKEN);
    expect(() => drop(part)).toThrow(TAKEN);
  });
});

describe('memory that is lent', () => {
  it('cannot be taken from the lender, resized, or lent to it in turn, until the loan ends', () => {
    const [parameter, buffer] = [ones([2]), zeros([2])];
    lend(parameter, buffer);
    expect(() => drop(buffer)).toThrow(/is lent to another/);
    expect(() => lend(buffer, ones([2]))).toThrow(/is lent to another/);
    expect(() => lend(buffer, parameter)).toThrow(/is lent to another/);
    expect(() => aten('resize_', buffer, [1000])).toThrow(/resiz/);
    aten('set_data', buffer, ones([2])); // the lender's memory outlives the lender
    expect(parameter.numbers()).toEqual([0, 0]);
    drop(parameter);
    drop(buffer);
  });

  it.each<[string, (parameter: Tensor, buffer: Tensor) => void, RegExp]>([
    ['beyond its end', (parameter, buffer) => lend(parameter, buffer, 4), /does not lie in the buffer/],
    ['from before its begin', (parameter, buffer) => lend(parameter, buffer, -4), /does not lie in the buffer/],
    [
      'with sums past 64 bits',
      (parameter, buffer) =>
        native.storageLend(parameter.live('lend'), buffer.live('lend'), (2n ** 63n - 4n) as unknown as number),
      /does not lie in the buffer/,
    ],
    [
      'between elements',
      (parameter, buffer) => lend(parameter.narrow(0, 0, 1), buffer, 2),
      /does not lie in the buffer/,
    ],
    ['to itself', (parameter) => lend(parameter, parameter), /to itself/],
    ['from a sparse tensor', (parameter, buffer) => lend(parameter, aten('to_sparse', buffer)), /dense tensors only/],
  ])('is not lent %s', (_, use, message) => {
    expect(() => use(ones([2]), ones([2]))).toThrow(message);
  });
});

it('only the launcher’s pipe is written to', () => {
  for (const file of [0, 1, 2, 3, 17, -1, 2 ** 31, 2 ** 40])
    expect(() => native.beatStart(file)).toThrow(/not the launcher's pipe/);
});
