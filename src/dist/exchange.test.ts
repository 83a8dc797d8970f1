import { expect, it } from 'vitest';
import { settledTensors } from '../../tests/support/settled-tensors.ts';
import { type DType, keep, liveTensors, ones, scope, type Tensor, zeros } from '../tensor/index.ts';
import { bucketsOf } from './buckets.ts';
import { Exchange, type ExchangeKind } from './exchange.ts';
import type { Group } from './group.ts';
import type { World } from './world.ts';

/** How many buckets were in flight when each one began: of five blocks, then of an embedding. */
async function onTheWay(dtype: DType, kind: ExchangeKind): Promise<number[]> {
  const beside: number[] = [];
  let joined = 0;
  const group = {
    start: () => beside.push(beside.length - joined),
    join: () => joined++,
    flush: async () => {},
  } as unknown as Group;
  const world = { rank: 0, size: 2, groupFor: () => group } as unknown as World;
  const blocks = Array.from({ length: 5 }, (_, i): [string, Tensor] => [
    `layers.${i}.weight`,
    keep(zeros([4], { dtype })),
  ]);
  const parameters: [string, Tensor][] = [...blocks, ['embed_tokens.weight', keep(zeros([1 << 20], { dtype }))]];
  scope(() => {
    for (const [, parameter] of parameters) parameter.grad = ones([...parameter.shape], { dtype });
  });
  const exchange = new Exchange(bucketsOf(parameters, 2), world, kind);
  for (const index of exchange.order) exchange.begin(index);
  await exchange.settle();
  expect(joined).toBe(6);
  exchange.dispose();
  for (const [, parameter] of parameters) parameter.dispose();
  return beside;
}

it('waits for earlier buckets only where those on their way take memory of their own', async () => {
  const before = await settledTensors();
  expect(await onTheWay('float32', 'whole')).toEqual([0, 1, 2, 3, 4, 5]);
  // A block is in flight together with one other, the embedding alone.
  expect(await onTheWay('bfloat16', 'whole')).toEqual([0, 1, 1, 1, 1, 0]);
  expect(await onTheWay('float32', 'part')).toEqual([0, 1, 1, 1, 1, 0]);
  expect(liveTensors()).toBe(before);
});
