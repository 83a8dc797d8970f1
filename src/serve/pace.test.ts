import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Pace } from './pace.ts';

// A clock that only this test advances, so that waits do not depend on the machine.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'setImmediate', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

async function waited(pace: Pace): Promise<number> {
  const started = performance.now();
  const turn = pace.turn();
  await vi.runAllTimersAsync();
  await turn;
  return performance.now() - started;
}

it('lets one stream write again at once, and many together after a while', async () => {
  const pace = new Pace();
  const leave = pace.enter();
  await waited(pace);
  expect(await waited(pace)).toBeLessThan(1);
  const others = Array.from({ length: 60 }, () => pace.enter());
  await waited(pace);
  const together = await waited(pace);
  expect(together).toBeGreaterThanOrEqual(45); // 61 streams of 0.75 ms
  expect(together).toBeLessThan(47);
  expect(pace.turn()).toBe(pace.turn());
  await vi.runAllTimersAsync();
  for (const each of [leave, ...others, leave]) each(); // leaving twice counts once
  expect(await waited(pace)).toBeLessThan(1);
});
