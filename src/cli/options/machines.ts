/** Machines that `attune launch` waits for, and the command that each of them needs. */
import { rankNames } from '../../dist/waiting.ts';
import { quoted } from '../../shell.ts';

/** This machine's part of a launch. */
export interface LaunchPart {
  nproc: number;
  nnodes: number;
  nodeRank: number;
  masterAddr: string;
  masterPort: number;
  /** Further options of the launch, such as `--max-restarts 3`. */
  more: readonly string[];
  /** The command that all ranks run. */
  command: readonly string[];
  /** As the user calls attune; undefined where an operator starts the machines. */
  typed?: string;
}

/**
 * What to say of ranks that are missing; nothing where they are of this machine, whose launcher watches them. `seconds`: for how long
 * they are still waited for.
 */
export function missingLines(ranks: readonly number[], part: LaunchPart, seconds?: number): string[] {
  const { nproc, nodeRank, masterAddr, masterPort, typed } = part;
  const away = ranks.filter((rank) => Math.floor(rank / nproc) !== nodeRank);
  const machines = [...new Set(away.map((rank) => Math.floor(rank / nproc)))];
  const [first, ...others] = machines;
  if (first === undefined) return [];
  const names = machines.length === 1 ? `machine ${first}` : `machines ${machines.join(', ')}`;
  // Rank 0's machine has the address; it may be there and not be reached.
  const who =
    first === 0
      ? `machine 0 does not answer at ${masterAddr}:${masterPort}. Is it started, and does a firewall let the port through?`
      : `${names} (${rankNames(away)}) ${machines.length === 1 ? 'has' : 'have'} not come to ${masterAddr}:${masterPort}.`;
  const wait = seconds === undefined ? '' : ` Waiting for up to ${seconds} s (ATTUNE_DIST_START).`;
  if (typed === undefined) return [`attune launch: ${who}${wait} An operator starts it: see its pods.`];
  const also = others.length === 0 ? '' : ` (and the same with --node-rank ${others.join(', ')})`;
  return [`attune launch: ${who}${wait} Start there${also}:`, `  ${startCommand(first, part, typed)}`];
}

/** What is to be typed on another machine. */
export function startCommand(machine: number, part: LaunchPart, typed: string): string {
  const { nproc, nnodes, masterAddr, masterPort, more, command } = part;
  const place = ['--nproc', `${nproc}`, '--nnodes', `${nnodes}`, '--node-rank', `${machine}`];
  const meeting = ['--master-addr', masterAddr, '--master-port', `${masterPort}`];
  return [typed, ...['launch', ...place, ...meeting, ...more, '--', ...command].map(quoted)].join(' ');
}
