import { expect, it } from 'vitest';
import { Pace } from './pace.ts';

const waited = async (pace: Pace): Promise<number> => {
  const started = performance.now();
  await pace.turn();
  return performance.now() - started;
};

it('lets one stream write again at once, and many together after a while', async () => {
  const pace = new Pace();
  const leave = pace.enter();
  await waited(pace);
  const alone = Math.min(...[await waited(pace), await waited(pace), await waited(pace)]);
  expect(alone).toBeLessThan(10);
  const others = Array.from({ length: 60 }, () => pace.enter());
  await pace.turn();
  expect(await waited(pace)).toBeGreaterThan(30); // 61 streams of 0.75 ms
  expect(pace.turn()).toBe(pace.turn());
  for (const each of [leave, ...others, leave]) each(); // leaving twice counts once
  await pace.turn();
  const empty = Math.min(...[await waited(pace), await waited(pace), await waited(pace)]);
  expect(empty).toBeLessThan(10);
});
