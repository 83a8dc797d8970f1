/**
 * Starts the ranks of one machine and watches them, like torchrun. Rank 0 has the console, and the others' errors are
 * shown with their rank. A rank that dies or hangs ends all, with one message that names it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { exitCodeOf, signalOf } from '../../exit-codes.ts';
import { beatFd, type Report, type RunFolder } from '../beat.ts';
import { freePort } from '../meeting.ts';
import { culpritOf, type EndedRank, endedAsAsked, isEcho, verdictOn } from './verdict.ts';

export interface LaunchOptions {
  /** Processes on this machine. */
  nproc: number;
  nnodes: number;
  nodeRank: number;
  masterAddr: string;
  /** A free port of this machine unless given. */
  masterPort?: number;
  /** Seconds within which all ranks must end once one has failed. */
  endSeconds: number;
  /** Seconds without progress after which a rank counts as hung; 0 = never. */
  hangSeconds: number;
  /** How many attempts may have preceded this one; 0 unless given. */
  attempt?: number;
  /** What each rank runs: a program and its arguments. */
  command: readonly string[];
  /** Further variables for its ranks. */
  env?: Readonly<Record<string, string>>;
  tell: (line: string) => void;
  /** Called with the ranks that those of this machine wait for at the start, and with none once all have arrived. */
  onWaiting?: (ranks: number[]) => void;
  signal?: AbortSignal;
}

export interface LaunchResult {
  /** 0, or the exit code of the rank that failed first. */
  code: number;
  /** Why it failed, naming the rank; other ranks' own errors; and a mistake of the user, if all ranks report it. */
  failure?: string;
  others?: string[];
  mistake?: string;
  /** The run's folder, and whether this launch created it, if rank 0 got that far. */
  folder?: RunFolder;
}

interface Rank extends EndedRank {
  child: ChildProcess;
  /** When its native thread last reported, and when it last reported progress. */
  lastBeat: number;
  lastProgress: number;
  /** Reports since the last progress. */
  still: number;
  done: number;
  /** Whether its thread runs, and the seconds it has run: now, and at the last progress. */
  runs: boolean;
  cpu: number;
  cpuAtProgress: number;
  stoppedSince?: number;
  /** Settled when its process has ended and all of its output was read. */
  silent: Promise<unknown>;
}

/** Runs all ranks of this machine once. */
export async function launchRanks(options: LaunchOptions): Promise<LaunchResult> {
  const { nproc, nnodes, nodeRank, tell, signal } = options;
  const port = options.masterPort ?? (await freePort());
  const id = nnodes === 1 ? randomUUID() : `${options.masterAddr}:${port}`;
  const result: LaunchResult = { code: 0 };
  /**
   * Whether ranks have not arrived at the start: nobody has anything to save, and some commands wait despite the
   * signal.
   */
  let isWaiting = false;
  const ranks = Array.from({ length: nproc }, (_, local) => {
    const rank = nodeRank * nproc + local;
    const env = {
      ...threadsFor(nproc),
      ...process.env,
      RANK: String(rank),
      WORLD_SIZE: String(nproc * nnodes),
      LOCAL_RANK: String(local),
      LOCAL_WORLD_SIZE: String(nproc),
      MASTER_ADDR: options.masterAddr,
      MASTER_PORT: String(port),
      ATTUNE_LAUNCH: id,
      ATTUNE_ATTEMPT: String(options.attempt ?? 0),
      ...options.env,
    };
    return startRank(rank, options.command, env, tell, (report) => {
      if (report.folder !== undefined) result.folder = report.folder;
      if (report.waiting === undefined) return;
      isWaiting = report.waiting.length > 0;
      if (isWaiting && signal?.aborted) endAtOnce();
      else options.onWaiting?.(report.waiting);
    });
  });
  const endAtOnce = () => {
    for (const { child, ended } of ranks) if (ended === undefined) child.kill('SIGKILL');
  };
  // The ranks get the signal that the launcher got.
  const onAbort = () => {
    if (isWaiting) endAtOnce();
    for (const { child } of ranks) child.kill(signalOf(signal as AbortSignal));
  };
  process.on('exit', endAtOnce);
  signal?.addEventListener('abort', onAbort);
  // It may have been aborted during the search for a port.
  if (signal?.aborted) onAbort();
  try {
    const failed = await firstFailure(ranks, options);
    if (failed === undefined) return result;
    const { culprit } = failed;
    // Several ranks may report the same cause at different times: a mistake that all of them meet, a requested end, or
    // another rank's end that they only noticed. Those are not the culprit's alone.
    const isShared = culprit !== undefined && (culprit.error?.code === 2 || isEcho(culprit) || endedAsAsked(culprit));
    await endAll(ranks, options.endSeconds, signal?.aborted ? 'request' : isShared ? 'mistake' : 'failure');
    if (signal?.aborted) return { ...result, code: exitCodeOf(signal) };
    if (culprit === undefined) return { ...result, code: 1, failure: failed.hangs };
    if (ranks.every(endedAsAsked)) {
      tell('attune launch: the ranks were asked to end by a signal to one of them, or on another machine');
      return { ...result, code: Math.max(...ranks.map(({ ended }) => ended?.code ?? 0)) };
    }
    return { ...result, ...verdictOn(culpritOf(ranks) ?? culprit, ranks) };
  } finally {
    signal?.removeEventListener('abort', onAbort);
    process.removeListener('exit', endAtOnce);
    endAtOnce();
  }
}

/** Ranks of one machine share its cores, unless the user set the number of threads per rank. */
function threadsFor(nproc: number): Record<string, string> {
  return { ATTUNE_THREADS: String(Math.max(1, Math.floor(availableParallelism() / nproc))) };
}

function startRank(
  rank: number,
  [program, ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
  tell: (line: string) => void,
  onReport: (report: Report) => void,
): Rank {
  const speaks = rank === 0;
  const child = spawn(program as string, args, {
    env: { ...env, ATTUNE_BEAT_FD: String(beatFd) },
    stdio: ['ignore', speaks ? 'inherit' : 'ignore', 'pipe', 'pipe'],
    // In its own process group: a terminal's Ctrl-C reaches only the launcher, which passes it on once.
    detached: true,
  });
  const state: Rank = {
    rank,
    child,
    pid: child.pid,
    lastBeat: 0,
    lastProgress: 0,
    still: 0,
    done: -1,
    runs: true,
    cpu: 0,
    cpuAtProgress: 0,
    errors: [],
    silent: new Promise((resolve) => child.on('close', resolve).on('error', resolve)),
  };
  if (speaks) child.stderr?.pipe(process.stderr, { end: false });
  createInterface({ input: child.stderr as Readable }).on('line', (line) => {
    state.errors = [...state.errors.slice(-19), line];
    if (!speaks) tell(`[rank ${rank}] ${line}`);
  });
  createInterface({ input: child.stdio[beatFd] as Readable }).on('line', (line) => {
    const report = JSON.parse(line) as Report;
    onReport(report);
    if (report.error !== undefined) state.error = report.error;
    if (report.done === undefined) return;
    state.lastBeat = performance.now();
    Object.assign(state, { runs: report.runs ?? true, cpu: report.cpu ?? 0, still: state.still + 1 });
    if (report.done === state.done && !report.native) return;
    state.done = report.done;
    state.still = 0;
    state.lastProgress = state.lastBeat;
    state.cpuAtProgress = state.cpu;
  });
  child.on('exit', (code, signal) => {
    state.ended = { code, signal };
  });
  child.on('error', (error) => {
    state.errors = [...state.errors, error.message];
    state.ended ??= { code: 1, signal: null };
  });
  return state;
}

/** The rank that failed, or a message about one that hangs. */
type Failure = { culprit: Rank; hangs?: undefined } | { culprit?: undefined; hangs: string };

/** Undefined when all have ended well. */
async function firstFailure(ranks: readonly Rank[], options: LaunchOptions): Promise<Failure | undefined> {
  for (;;) {
    if (culpritOf(ranks) !== undefined) {
      // Others fail within moments: one that was killed, or failed for a reason of its own, may be among them.
      await sleep(250);
      return { culprit: culpritOf(ranks) as Rank };
    }
    if (ranks.every(({ ended }) => ended !== undefined)) return undefined;
    const hung = ranks.find((rank) => isHung(rank, ranks, options));
    if (hung !== undefined) return { hangs: `rank ${hung.rank} (process ${hung.pid}) hangs: ${whyHung(hung)}` };
    await sleep(100);
  }
}

/**
 * A rank hangs if a signal stopped it, or if its native thread reports for `hangSeconds` that JavaScript's thread
 * neither turns its event loop nor is in a native call nor reads or writes. That is an endless loop (it has run all
 * that time; a machine with too few cores makes no rank hang) or a blocking wait (it sleeps). A rank whose native
 * thread is silent too gets a minute, as long as others report.
 */
function isHung(rank: Rank, ranks: readonly Rank[], { endSeconds, hangSeconds }: LaunchOptions): boolean {
  if (rank.ended !== undefined) return false;
  const now = performance.now();
  rank.stoppedSince = isStopped(rank.pid) ? (rank.stoppedSince ?? now) : undefined;
  if (rank.stoppedSince !== undefined) return now - rank.stoppedSince > (1000 * endSeconds) / 2;
  if (hangSeconds === 0 || rank.lastBeat === 0) return false;
  const isLooping = rank.cpu - rank.cpuAtProgress > 0.9 * hangSeconds;
  // At least half of that time's reports have arrived: a machine that stood still as a whole makes no rank hang.
  const wasAwake = rank.still >= Math.max(2, hangSeconds);
  if (rank.lastBeat - rank.lastProgress > 1000 * hangSeconds && wasAwake && (isLooping || !rank.runs)) return true;
  const othersReport = ranks.some((other) => other !== rank && now - other.lastBeat < 5000);
  return othersReport && now - rank.lastBeat > 1000 * Math.max(60, hangSeconds);
}

function whyHung({ stoppedSince, lastBeat, lastProgress }: Rank): string {
  if (stoppedSince !== undefined) return 'it was stopped by a signal';
  const idle = Math.round((lastBeat - lastProgress) / 1000);
  return idle > 0
    ? `JavaScript has been at one place for ${idle} s, outside of native code (an endless loop, or a wait that blocks; see --hang-timeout)`
    : `no sign of life for ${Math.round((performance.now() - lastBeat) / 1000)} s`;
}

/** Whether Linux says that a process is stopped (state T). */
function isStopped(pid: number | undefined): boolean {
  try {
    return / [Tt] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/, ''));
  } catch {
    return false;
  }
}

/** Ranks that noticed the failure end by themselves and say so; those left after a moment are killed. */
async function endAll(
  ranks: readonly Rank[],
  endSeconds: number,
  after: 'request' | 'mistake' | 'failure',
): Promise<void> {
  const patience =
    after === 'request' ? endSeconds : after === 'mistake' ? endSeconds / 2 : Math.min(2, endSeconds / 4);
  const left = () => ranks.filter(({ ended }) => ended === undefined);
  for (let waited = 0; waited < patience && left().length > 0; waited += 0.05) await sleep(50);
  for (const rank of left()) {
    rank.wasEnded = true;
    rank.child.kill('SIGKILL');
  }
  for (let waited = 0; waited < endSeconds / 2 && left().length > 0; waited += 0.02) await sleep(20);
  // Last words may come out of a pipe after the process has ended. A process started by a rank may keep the pipe open.
  await Promise.race([Promise.all(ranks.map(({ silent }) => silent)), sleep(1000)]);
}
