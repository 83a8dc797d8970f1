import { expect, it } from 'vitest';
import type { Progress } from '../progress.ts';
import { learnSpirals } from './demo.ts';

it('learns the spirals, reports every step and leaves no tensor behind', () => {
  let steps = 0;
  const progress: Progress = {
    start: (_, total) => ({
      advance: () => {
        steps++;
      },
      done: () => expect(steps).toBe(total),
    }),
  };
  const story = learnSpirals(progress);
  expect(steps).toBe(400);
  expect(story.before.accuracy).toBeLessThan(0.7);
  expect(story.after.accuracy).toBeGreaterThan(0.97);
  expect(story.after.loss).toBeLessThan(story.before.loss / 10);
  expect(story.liveAfter).toBe(story.liveBefore);
  const rows = story.picture.split('\n');
  expect(rows).toHaveLength(27);
  for (const mark of ['#', '.', 'O', 'x']) expect(story.picture).toContain(mark);
});
