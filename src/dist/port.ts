/** A port to meet at, for ranks that do not listen on it yet. */
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** Below are the ports of programs that expect to have theirs. */
const lowest = 10_000;
const highest = 65_535;

/**
 * A port that nobody listens on at this moment. It is not one of those that the system gives to any connection: such a port may be
 * somebody else's a moment later, before rank 0 listens on it.
 */
export async function freePort(): Promise<number> {
  const [first, last] = givenPorts();
  const below = Math.max(0, first - lowest);
  const choices = below + Math.max(0, highest - last);
  for (let tries = 0; tries < 100 && choices > 0; tries++) {
    const place = randomInt(choices);
    const port = place < below ? lowest + place : last + 1 + place - below;
    if ((await listen(port).catch(() => undefined)) !== undefined) return port;
  }
  return listen(0);
}

/** The first and the last port that the system gives to whoever asks for any. */
export function givenPorts(): [first: number, last: number] {
  try {
    const text = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8');
    return text.trim().split(/\s+/).map(Number) as [number, number];
  } catch {
    // The range that IANA names for it.
    return [49_152, 65_535];
  }
}

/** Listens for a moment: the port; 0 takes any. */
function listen(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const { port: taken } = server.address() as { port: number };
      server.close(() => resolve(taken));
    });
  });
}
