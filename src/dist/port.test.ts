import { expect, it } from 'vitest';
import { freePort, givenPorts } from './port.ts';

it('finds ports that no connection is given by chance', async () => {
  const [first, last] = givenPorts();
  expect(first).toBeLessThan(last);
  const ports = await Promise.all(Array.from({ length: 20 }, freePort));
  for (const port of ports) {
    expect(port < first || port > last, `${port}`).toBe(true);
    expect(port).toBeGreaterThan(1023);
    expect(port).toBeLessThan(65_536);
  }
  expect(new Set(ports).size).toBeGreaterThan(15);
});
