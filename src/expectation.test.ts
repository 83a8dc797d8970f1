import { expect, it } from 'vitest';
import { z } from 'zod';
import { expectation } from './expectation.ts';

const schema = z.object({
  count: z.number().int().min(1).optional(),
  role: z.enum(['user', 'assistant']).optional(),
  text: z.union([z.string(), z.array(z.string())]).optional(),
});

it.each([
  [{ count: 'lots' }, 'expected a number, got "lots".'],
  [{ count: 0 }, 'expected a number at least 1, got 0.'],
  [{ role: 'usr' }, 'expected one of user, assistant, got "usr". Did you mean "user"?'],
  [{ text: 7 }, 'expected text or a list, got 7.'],
])('says of %j: %s', (value, words) => {
  const [issue] = schema.safeParse(value).error?.issues ?? [];
  expect(expectation(issue as never, Object.values(value)[0])).toBe(words);
});

it('shows no secret', () => {
  const [issue] = schema.safeParse({ count: 'hunter2' }).error?.issues ?? [];
  expect(expectation(issue as never, 'hunter2', { secret: true })).not.toContain('hunter2');
});
