/**
 * `attune launch --nproc N -- <attune command>`: several processes that train together, on one machine or on several. With
 * --max-restarts, a launch that failed goes on from the run's last checkpoint.
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { launchRanks } from '../dist/launch/launch.ts';
import { addressesOf, checkIsHere, checkPort } from '../dist/meeting.ts';
import { startSeconds } from '../dist/place.ts';
import { UserError } from '../errors.ts';
import { kebabCase } from '../runs/config/fields.ts';
import { Attempts } from './options/attempts.ts';
import { type LaunchPart, missingLines } from './options/machines.ts';
import { typedCommand } from './options/typed.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { tell } from './terminal/print.ts';

export interface Flags {
  nproc: string;
  nnodes: string;
  nodeRank: string;
  masterAddr: string;
  masterPort?: string;
  maxRestarts: string;
  timeout: string;
  hangTimeout: string;
  oversubscribe?: boolean;
}

/** Processes for each core that a launch accepts without being told to; a few are accepted on any machine. */
const perCore = 4;
const alwaysAccepted = 8;

/** Commands whose ranks work together; any other would do its work once per process. */
const together = ['train', 'evaluate', 'compare', 'doctor'];

export const launchDefaults: Omit<Flags, 'nproc'> = {
  nnodes: '1',
  nodeRank: '0',
  masterAddr: '127.0.0.1',
  maxRestarts: '0',
  timeout: '10',
  hangTimeout: '8',
};

export function register(program: Command): void {
  program
    .command('launch')
    .description('runs a command on several processes or machines, with one result')
    .option('-n, --nproc <n>', 'processes on this machine; with GPUs, one for each (always needed)')
    .option('--nnodes <n>', 'machines', launchDefaults.nnodes)
    .option('--node-rank <i>', 'which of them this is, from 0', launchDefaults.nodeRank)
    .option('--master-addr <host>', 'address of machine 0', launchDefaults.masterAddr)
    .option('--master-port <port>', 'a free port there; with one machine it is found')
    .option(
      '--max-restarts <n>',
      'how often to resume from the last checkpoint after a failure',
      launchDefaults.maxRestarts,
    )
    .option('--timeout <seconds>', 'all processes end within this time once one has failed', launchDefaults.timeout)
    .option(
      '--hang-timeout <seconds>',
      'a process that makes no progress outside native code for this long has failed; 0 = never',
      launchDefaults.hangTimeout,
    )
    .option(
      '--oversubscribe',
      `more than ${perCore} processes for each core; each takes memory before it loads a model`,
    )
    .argument('<command...>', 'the command, after --')
    .showHelpAfterError(
      '(options of the command to launch come after "--": attune launch --nproc 2 -- train sft …; add --help for what can be asked)',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  attune launch --nproc 2 -- train sft --model ./base --dataset chats.jsonl\n  attune launch --nproc 8 --nnodes 2 --node-rank 0 --master-addr node0 --master-port 29500 -- train reward …',
    )
    .action(async (command: string[], { nproc, ...flags }: Partial<Flags> & typeof launchDefaults) => {
      // Not by the parser, which would ask for it before it names an option that it does not know.
      if (nproc === undefined)
        throw new UserError('--nproc is missing: how many processes, such as attune launch --nproc 2 -- train sft …');
      process.exitCode = await launchCommand(command, { nproc, ...flags });
    });
}

/** `isPod`: an operator starts the machines; their names may not be known yet, and it may have started them before. */
export async function launchCommand(
  command: readonly string[],
  flags: Flags,
  { isPod = false }: { isPod?: boolean } = {},
): Promise<number> {
  const nproc = whole('--nproc', flags.nproc, 1);
  const nnodes = whole('--nnodes', flags.nnodes, 1);
  const nodeRank = whole('--node-rank', flags.nodeRank, 0);
  if (nodeRank >= nnodes)
    throw new UserError(`--node-rank ${nodeRank} is not below --nnodes ${nnodes}: machines are counted from 0.`);
  if (nnodes > 1 && (flags.masterAddr === launchDefaults.masterAddr || flags.masterPort === undefined))
    throw new UserError(
      `--nnodes: several machines have to know where to meet: give --master-addr and --master-port on each (${launchDefaults.masterAddr} is each machine itself).`,
    );
  if (!together.includes(command[0] ?? ''))
    throw new UserError(
      `attune launch runs ${together.map((name) => `"${name}"`).join(', ')} in several processes; "${command[0]}" is none of them.`,
    );
  const masterPort = flags.masterPort === undefined ? undefined : whole('--master-port', flags.masterPort, 1, 65535);
  const planOnly = isDryRun(command);
  // How many an operator asks for is its own affair.
  if (!planOnly && !flags.oversubscribe && !isPod) checkCrowd(nproc);
  for (const line of crowdNotes(nproc)) tell(line);
  if (planOnly) return runOnce(command, nproc * nnodes);
  const addresses = await addressesOf(flags.masterAddr, { patienceMs: isPod ? 1000 * startSeconds(process.env) : 0 });
  if (nnodes === 1) checkIsHere(flags.masterAddr, addresses);
  if (nodeRank === 0 && masterPort !== undefined) checkPort(masterPort);
  /** Ranks of other machines that have not come. */
  let missing: string[] = [];
  using interrupt = onInterrupt((signal) =>
    tell(
      missing.length > 0
        ? `${signal}: the ranks end; not all had come`
        : `${signal}: ${endings[command[0] as string] ?? 'the ranks end'}; press Ctrl-C again to leave at once`,
    ),
  );
  const restarts = whole('--max-restarts', flags.maxRestarts, 0);
  const before = Number(process.env.ATTUNE_ATTEMPT ?? 0) + Number(isPod);
  const part: Omit<LaunchPart, 'command'> = {
    ...{ nproc, nnodes, nodeRank, masterAddr: flags.masterAddr, masterPort: masterPort ?? 0 },
    more: changedOptions(flags),
    ...(isPod ? {} : { typed: typedCommand() }),
  };
  const attempts = new Attempts(command);
  let args = [...command];
  const onWaiting = (ranks: number[]) => {
    if (missing.length > 0 && ranks.length === 0) tell('attune launch: all machines are there');
    // After a restart another machine goes on from the checkpoint too.
    const now = { ...part, command: args };
    missing = missingLines(ranks, now);
    for (const line of missingLines(ranks, now, startSeconds(process.env))) tell(line);
  };
  for (let attempt = 0; ; attempt++) {
    const result = await launchRanks({
      nproc,
      nnodes,
      nodeRank,
      masterAddr: flags.masterAddr,
      ...(masterPort === undefined ? {} : { masterPort }),
      endSeconds: whole('--timeout', flags.timeout, 1),
      hangSeconds: whole('--hang-timeout', flags.hangTimeout, 0),
      attempt: before + attempt,
      command: attuneWith(args),
      tell,
      onWaiting,
      signal: interrupt.signal,
    });
    if (result.failure === undefined || interrupt.signal.aborted) return result.code;
    for (const line of result.others ?? []) tell(line);
    const all = nproc === 1 ? '' : ` All ${nproc} processes of this machine have ended.`;
    tell(result.mistake ?? `${failureLine(result.failure)}${all}`);
    for (const line of missing) tell(line);
    missing = [];
    // A mistake of the user's is one at every attempt.
    if (result.code === 2) return result.code;
    if (attempt >= restarts) {
      const way = attempts.wayOn(result.folder);
      if (way !== undefined) tell(`attune launch: ${way}`);
      return result.code;
    }
    args = attempts.after(result.folder);
    tell(`attune launch: restart ${attempt + 1} of ${restarts}: ${howOn(args)}`);
  }
}

/** How ranks end that are asked to, by what they run. */
const endings: Readonly<Record<string, string>> = {
  train: 'the ranks finish their step and save',
  compare: 'the ranks finish their step; what is done is kept',
};

const failureLine = (failure: string) => `attune launch: ${failure.replace(/[^.?!]$/, '$&.')}`;

/** Options of the launch that every machine is to be given. */
const changedOptions = (flags: Flags) => [
  ...(['maxRestarts', 'timeout', 'hangTimeout'] as const).flatMap((name) =>
    flags[name] === launchDefaults[name] ? [] : [`--${kebabCase(name)}`, flags[name]],
  ),
  ...(flags.oversubscribe ? ['--oversubscribe'] : []),
];

/** How a command goes on that Attempts has made. */
const howOn = (args: readonly string[]) =>
  args.includes('--resume-from')
    ? 'going on from the last checkpoint'
    : args.includes('--resume')
      ? 'the pipeline goes on (--resume)'
      : 'from the beginning';

const attuneWith = (args: readonly string[]) => [
  process.execPath,
  join(fileURLToPath(new URL('../..', import.meta.url)), 'bin/attune.mjs'),
  ...args,
];

const isDryRun = (command: readonly string[]) => command.some((arg) => /^--dry[-_]run(=true)?$/.test(arg));

/** A plan is the same for every process: one is asked, and told how many there shall be. */
async function runOnce(command: readonly string[], ranks: number): Promise<number> {
  using interrupt = onInterrupt();
  const { code, mistake, failure } = await launchRanks({
    ...{ nproc: 1, nnodes: 1, nodeRank: 0, masterAddr: launchDefaults.masterAddr },
    ...{ endSeconds: Number(launchDefaults.timeout), hangSeconds: 0 },
    command: attuneWith(command),
    env: { ATTUNE_PLANNED_RANKS: String(ranks) },
    tell,
    signal: interrupt.signal,
  });
  if (failure !== undefined) tell(mistake ?? failureLine(failure));
  return code;
}

/** A mistyped number of processes would take all memory and hold the machine for minutes before anyone could stop it. */
export function checkCrowd(nproc: number, cores = availableParallelism()): void {
  const most = Math.max(alwaysAccepted, perCore * cores);
  if (nproc <= most) return;
  throw new UserError(
    `--nproc ${nproc}: this machine has ${cores} ${cores === 1 ? 'core' : 'cores'}, and more than ${most} processes would mostly wait for each other, each with memory of its own. Take ${cores} or fewer; --oversubscribe starts them nevertheless.`,
  );
}

/** More processes than cores are not an error, and rarely what somebody wants. */
export function crowdNotes(
  nproc: number,
  cores = availableParallelism(),
  threads = process.env.ATTUNE_THREADS ?? '1',
): string[] {
  if (nproc <= cores) return [];
  const each = `${threads} ${threads === '1' ? 'thread' : 'threads'}`;
  return [
    `Attention: ${nproc} processes on ${cores} ${cores === 1 ? 'core' : 'cores'}: each gets ${each}, and they take turns. On CPUs, more than ${cores} make nothing faster, and each needs memory of its own.`,
  ];
}

function whole(name: string, text: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
  const value = Number(text);
  // The empty text of a variable that is not set is no 0.
  if (!/^\d+$/.test(text) || value < least || value > most)
    throw new UserError(
      `${name} ${text || '""'}: a whole number from ${least}${most < Number.MAX_SAFE_INTEGER ? ` to ${most}` : ''} is wanted.`,
    );
  return value;
}
