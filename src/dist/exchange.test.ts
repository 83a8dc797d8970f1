import { expect, it } from 'vitest';
import { type DType, keep, liveTensors, ones, scope, type Tensor, zeros } from '../tensor/index.ts';
import { bucketsOf } from './buckets.ts';
import { Exchange, type ExchangeKind } from './exchange.ts';
import type { Group } from './group.ts';
import type { World } from './world.ts';

/** A world of two whose collectives give back what they are given; it notes which of them were waited for by blocking. */
function worldOfTwo() {
  const joined: number[] = [];
  let tickets = 0;
  const group = {
    start: () => tickets++,
    join: (ticket: number) => joined.push(ticket),
    flush: async () => {},
  } as unknown as Group;
  return { world: { rank: 0, size: 2, groupFor: () => group } as unknown as World, joined };
}

async function exchanged(dtype: DType, kind: ExchangeKind): Promise<{ during: number; after: number }> {
  const { world, joined } = worldOfTwo();
  const parameters = Array.from({ length: 5 }, (_, i): [string, Tensor] => [
    `model.layers.${i}.weight`,
    keep(zeros([4], { dtype })),
  ]);
  const exchange = new Exchange(bucketsOf(parameters, 2), world, kind);
  scope(() => {
    for (const [, parameter] of parameters) parameter.grad = ones([4], { dtype });
  });
  for (const index of exchange.order) exchange.begin(index);
  const during = joined.length;
  await exchange.settle();
  exchange.dispose();
  for (const [, parameter] of parameters) parameter.dispose();
  return { during, after: joined.length };
}

it('waits within backward only where buckets on their way take memory of their own', async () => {
  const before = liveTensors();
  expect(await exchanged('float32', 'whole')).toEqual({ during: 0, after: 5 });
  expect(await exchanged('bfloat16', 'whole')).toEqual({ during: 3, after: 5 });
  expect(await exchanged('float32', 'part')).toEqual({ during: 3, after: 5 });
  expect(liveTensors()).toBe(before);
});
