/**
 * Where ranks meet: the address and the port of rank 0's machine. Both are looked at before anything waits for them, since c10d tries
 * an address that does not exist, or a port that somebody else has, for minutes.
 */
import { lookup } from 'node:dns/promises';
import { existsSync, readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../errors.ts';

/** Gives the addresses of a name; tests replace it. */
export type Resolver = (host: string) => Promise<string[]>;

const ofThisMachine: Resolver = async (host) =>
  (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address);

export interface Patience {
  /** For how long an unknown name is asked for again: a pod's name may come after the pods that ask for it. */
  patienceMs?: number;
  resolve?: Resolver;
  pauseMs?: number;
}

/** The addresses of the machine of rank 0. */
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

/** Refuses an address of another machine, where all ranks are on this one. */
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

/** The ports that programs of this machine listen on, as Linux tells; none where it does not. Nobody is disturbed by asking. */
function listeningSockets(): number[] {
  return ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((path) =>
    existsSync(path) ? listeningPorts(readFileSync(path, 'utf8')) : [],
  );
}

/** From a table such as `0: 0100007F:7461 00000000:0000 0A …`: the local port in base 16, and the state, of which 0A is "listens". */
export function listeningPorts(table: string): number[] {
  return Array.from(table.matchAll(/^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A /gm), ([, port = '']) =>
    Number.parseInt(port, 16),
  );
}
