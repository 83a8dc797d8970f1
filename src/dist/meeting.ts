/**
 * Where ranks meet: the address and the port of rank 0's machine. Both are checked before anything waits for them,
 * since c10d retries a nonexistent address, or a port in use, for minutes.
 */
import { randomInt } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../errors.ts';

/** Gives the addresses of a name; tests replace it. */
export type Resolver = (host: string) => Promise<string[]>;

const ofThisMachine: Resolver = async (host) =>
  (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address);

export interface Patience {
  /** For how long an unknown name is looked up again: a pod's name may appear after the pods that look for it. */
  patienceMs?: number;
  resolve?: Resolver;
  pauseMs?: number;
}

/** The addresses of rank 0's machine. */
export async function addressesOf(
  host: string,
  { patienceMs = 0, resolve = ofThisMachine, pauseMs = 1000 }: Patience = {},
): Promise<string[]> {
  const begun = performance.now();
  for (;;) {
    try {
      return await resolve(host);
    } catch (error) {
      const waited = performance.now() - begun;
      if (waited < patienceMs) {
        await sleep(pauseMs);
        continue;
      }
      const { code = (error as Error).message } = error as NodeJS.ErrnoException;
      throw new UserError(
        `The ranks shall meet at "${host}" (--master-addr, MASTER_ADDR), and this machine knows no such name (${code}${patienceMs > 0 ? `, asked for ${Math.round(waited / 1000)} s` : ''}). Give the address of machine 0, or a name that every machine knows; with one machine alone it can be left out.`,
      );
    }
  }
}

/** Refuses an address of another machine if all ranks are on this one. */
export function checkIsHere(
  host: string,
  addresses: readonly string[],
  own = Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []),
): void {
  const isHere = (address: string) => /^127\.|^::1$|^::ffff:127\./.test(address) || own.includes(address);
  if (addresses.some(isHere)) return;
  throw new UserError(
    `--master-addr ${host} is another machine (${addresses.join(', ')}), but --nnodes 1 means that all ranks are on this one: leave --master-addr out, or say with --nnodes how many machines there are.`,
  );
}

/** Refuses a port that a program of this machine listens on; for rank 0's machine. */
export function checkPort(port: number, sockets = listeningSockets()): void {
  if (sockets.includes(port)) throw new UserError(portInUse(port));
}

export const portInUse = (port: number): string =>
  `Port ${port} of this machine is in use by another program, perhaps by another launch: choose one with --master-port (MASTER_PORT); with one machine alone, attune launch finds a free one.`;

/**
 * The ports that programs of this machine listen on, as Linux lists them; none on other systems. Reading the list opens
 * no connections.
 */
function listeningSockets(): number[] {
  return ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((path) =>
    existsSync(path) ? listeningPorts(readFileSync(path, 'utf8')) : [],
  );
}

/**
 * From a table such as `0: 0100007F:7461 00000000:0000 0A …`: the local port in base 16, and the state, of which 0A
 * means listening.
 */
export function listeningPorts(table: string): number[] {
  return Array.from(table.matchAll(/^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A /gm), ([, port = '']) =>
    Number.parseInt(port, 16),
  );
}

/** Programs expect fixed ports below this one. */
const lowest = 10_000;
const highest = 65_535;

/**
 * A port that nobody listens on now. It is outside the system's ephemeral ports: one of those may be taken a moment
 * later, before rank 0 listens on it.
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

/** The first and the last ephemeral port. */
export function givenPorts(): [first: number, last: number] {
  try {
    const text = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8');
    return text.trim().split(/\s+/).map(Number) as [number, number];
  } catch {
    // IANA's range of ephemeral ports.
    return [49_152, 65_535];
  }
}

/** Listens for a moment and returns the port; 0 takes any. */
function listen(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const { port: taken } = server.address() as { port: number };
      server.close(() => resolve(taken));
    });
  });
}
