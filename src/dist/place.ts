/**
 * Which rank this process is, from its environment. It may have been started by torchrun or `attune launch` (RANK,
 * WORLD_SIZE, LOCAL_RANK…), by Slurm's srun (SLURM_PROCID…), or by Kubernetes operators (RANK of the node, no
 * LOCAL_RANK; or PET_NODE_RANK).
 *
 *     const place = readPlace(process.env);      // undefined: this process is alone
 */
import { existsSync, readdirSync } from 'node:fs';
import { UserError } from '../errors.ts';

/** A process's place in a world of several. */
export interface Place {
  rank: number;
  size: number;
  /** The rank among the processes of this machine, and the number of those. */
  localRank: number;
  localSize: number;
  /** Where the store of rank 0 listens. */
  host: string;
  port: number;
  /** Distinguishes launches that would meet at one address. */
  runId: string;
  /** torchrun's agent already runs the store; rank 0 only connects. */
  hasStore: boolean;
  /**
   * Prefix of all keys in a store that outlives its ranks, so that keys from before a restart by torchrun do not count.
   */
  prefix: string;
  startedBy: 'torchrun' | 'attune launch' | 'slurm' | 'kubernetes';
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Undefined if this process is a world of its own. */
export function readPlace(env: Environment): Place | undefined {
  if (env.RANK !== undefined && env.WORLD_SIZE !== undefined) return fromTorchrun(env);
  // SLURM_STEP_ID is set only inside srun: a batch script, which also sees the other variables, is one process.
  if (env.SLURM_PROCID !== undefined && env.SLURM_STEP_ID !== undefined) return fromSlurm(env);
  return undefined;
}

/**
 * Refuses an incomplete place: the process would train alone, unnoticed. Complete are RANK with WORLD_SIZE; srun's
 * variables, beside which scripts often set one of the two; and an operator's PET_NNODES with the number of the pod.
 */
export function checkPlace(env: Environment): void {
  if (env.LOCAL_RANK === undefined && isSeveral(env.PET_NNODES) && nodeNumber(env) === undefined)
    throw new UserError(
      `PET_NNODES=${env.PET_NNODES} says that this is one of several pods, but neither PET_NODE_RANK nor RANK says which. Where pods find each other by a rendezvous (PET_RDZV_ENDPOINT), start attune by torchrun: torchrun --no-python attune train …`,
    );
  if (readPlace(env) !== undefined || env.PET_NNODES !== undefined) return;
  const { RANK, WORLD_SIZE } = env;
  const instead = 'Start with attune launch or torchrun, which set both, or unset it to work alone.';
  if (RANK !== undefined && WORLD_SIZE === undefined)
    throw new UserError(
      `RANK=${RANK} says that this is one of several processes, but WORLD_SIZE, how many they are, is not set. ${instead}`,
    );
  if (RANK === undefined && isSeveral(WORLD_SIZE))
    throw new UserError(
      `WORLD_SIZE=${WORLD_SIZE} says that this is one of several processes, but RANK, which of them, is not set. ${instead}`,
    );
}

const isSeveral = (text: string | undefined) => text !== undefined && text !== '1';
/** The number of this pod in its job. */
const nodeNumber = (env: Environment) => env.PET_NODE_RANK ?? env.RANK;

/**
 * Whether this process's starter may have started the same command before: `attune launch` and torchrun after a
 * failure, Slurm after requeueing the job, an operator that restarts pods without counting.
 */
export function isStartedAgain(env: Environment): boolean {
  const counts = [env.ATTUNE_ATTEMPT, env.TORCHELASTIC_RESTART_COUNT, env.SLURM_RESTART_COUNT];
  return counts.some((count) => Number(count) > 0) || isPod(env);
}

/** Whether an operator has started this process, as one of its pods. */
export const isPod = (env: Environment): boolean =>
  env.LOCAL_RANK === undefined &&
  (env.PET_NNODES !== undefined || (env.RANK !== undefined && env.WORLD_SIZE !== undefined));

/** How many ranks a plan (`--dry-run`) is for: `attune launch` runs it in one process, and tells it. */
export const plannedRanks = (env: Environment): number =>
  env.ATTUNE_PLANNED_RANKS === undefined ? (readPlace(env)?.size ?? 1) : count(env, 'ATTUNE_PLANNED_RANKS');

/** Seconds to wait for all ranks at the start. */
export const startSeconds = (env: Environment): number => seconds(env, 'ATTUNE_DIST_START', 300);

/** The seconds in a variable, or the default if it is unset or empty. */
export function seconds(env: Environment, name: string, otherwise: number, least: 0 | 1 = 1): number {
  const text = env[name];
  if (text === undefined || text === '') return otherwise;
  const value = Number(text);
  if (Number.isFinite(value) && (least === 0 ? value >= 0 : value > 0)) return value;
  throw new UserError(`${name}=${text}: expected a number of seconds${least === 0 ? ', or 0 for never' : ' above 0'}.`);
}

function fromTorchrun(env: Environment): Place | undefined {
  const size = count(env, 'WORLD_SIZE');
  const rank = count(env, 'RANK');
  checkRank('RANK', rank, 'WORLD_SIZE', size);
  if (size === 1) return undefined;
  const own = env.ATTUNE_LAUNCH !== undefined;
  const perNode = env.LOCAL_RANK === undefined;
  return {
    rank,
    size,
    localRank: perNode ? 0 : count(env, 'LOCAL_RANK'),
    localSize: env.LOCAL_WORLD_SIZE === undefined ? 1 : count(env, 'LOCAL_WORLD_SIZE'),
    ...masterOf(env),
    runId: env.TORCHELASTIC_RUN_ID ?? env.ATTUNE_LAUNCH ?? 'none',
    hasStore: env.TORCHELASTIC_USE_AGENT_STORE === 'True',
    prefix: (env.TORCHELASTIC_RESTART_COUNT ?? '0') === '0' ? '' : `restart-${env.TORCHELASTIC_RESTART_COUNT}/`,
    startedBy: own ? 'attune launch' : perNode ? 'kubernetes' : 'torchrun',
  };
}

function masterOf(env: Environment): { host: string; port: number } {
  const host = env.MASTER_ADDR ?? env.PET_MASTER_ADDR;
  const port = env.MASTER_PORT ?? env.PET_MASTER_PORT;
  if (host === undefined)
    throw new UserError(
      'The environment says that this is one of several processes (RANK and WORLD_SIZE, or PET_NNODES), but MASTER_ADDR is not set: the address of rank 0. Start it with attune launch or torchrun, or set it.',
    );
  return { host, port: port === undefined ? 29500 : portOf(port) };
}

function fromSlurm(env: Environment): Place | undefined {
  const size = count(env, 'SLURM_NTASKS');
  const rank = count(env, 'SLURM_PROCID');
  checkRank('SLURM_PROCID', rank, 'SLURM_NTASKS', size);
  if (size === 1) return undefined;
  const job = `${env.SLURM_JOB_ID ?? '0'}.${env.SLURM_STEP_ID ?? '0'}`;
  const nodes = hostsOf(env.SLURM_STEP_NODELIST ?? env.SLURM_JOB_NODELIST ?? env.SLURM_NODELIST ?? '');
  const host = env.MASTER_ADDR ?? nodes[0];
  if (host === undefined)
    throw new UserError('SLURM_STEP_NODELIST names no machine: set MASTER_ADDR to that of rank 0.');
  return {
    rank,
    size,
    localRank: count(env, 'SLURM_LOCALID'),
    localSize: tasksHere(env),
    host,
    // Jobs that share a machine get different ports.
    port: env.MASTER_PORT === undefined ? 20000 + (Number(env.SLURM_JOB_ID ?? 0) % 20000) : portOf(env.MASTER_PORT),
    runId: `slurm-${job}`,
    hasStore: false,
    prefix: '',
    startedBy: 'slurm',
  };
}

/** SLURM_STEP_TASKS_PER_NODE looks like `4(x2),3`, in the order of nodes. */
function tasksHere(env: Environment): number {
  const text = env.SLURM_STEP_TASKS_PER_NODE ?? env.SLURM_TASKS_PER_NODE ?? '1';
  const each = text.split(',').flatMap((part) => {
    const [, tasks = '1', times = '1'] = /^(\d+)(?:\(x(\d+)\))?$/.exec(part) ?? [];
    return Array.from({ length: Number(times) }, () => Number(tasks));
  });
  return each[Number(env.SLURM_NODEID ?? 0)] ?? 1;
}

/** Machine names in a Slurm list: `gpu[01-03,7],login` → gpu01, gpu02, gpu03, gpu7, login. */
export function hostsOf(list: string): string[] {
  const parts = list.match(/[^,[]+(\[[^\]]*\])?[^,[]*/g) ?? [];
  return parts.flatMap((part) => {
    const [, before = part, inside, after = ''] = /^([^[]*)\[([^\]]*)\](.*)$/.exec(part) ?? [];
    if (inside === undefined) return [part];
    return inside.split(',').flatMap((range) => {
      const [low = '', high = low] = range.split('-');
      const names = Array.from({ length: Number(high) - Number(low) + 1 }, (_, i) => Number(low) + i);
      return names.map((number) => `${before}${String(number).padStart(low.length, '0')}${after}`);
    });
  });
}

function count(env: Environment, name: string): number {
  const value = Number(env[name]);
  if (env[name] === undefined || env[name] === '' || !Number.isInteger(value) || value < 0)
    throw new UserError(
      `${name}=${env[name] ?? ''} is not a count, though this process was started as one of several.`,
    );
  return value;
}

function portOf(text: string): number {
  const port = count({ MASTER_PORT: text }, 'MASTER_PORT');
  if (port < 1 || port > 65535) throw new UserError(`MASTER_PORT=${port} is not a port: they go from 1 to 65535.`);
  return port;
}

function checkRank(name: string, rank: number, ofName: string, size: number): void {
  if (rank >= size) throw new UserError(`${name}=${rank} is not below ${ofName}=${size}.`);
}

/** The GPUs of this machine that its ranks may use, as CUDA_VISIBLE_DEVICES names them. */
export function devicesOf(visible: string | undefined, installed: number): string[] {
  if (visible !== undefined) return visible.split(',').filter(Boolean);
  return Array.from({ length: installed }, (_, i) => String(i));
}

/** GPUs that NVIDIA's driver knows on this machine. */
export function gpusInstalled(): number {
  const folder = '/proc/driver/nvidia/gpus';
  return existsSync(folder) ? readdirSync(folder).length : 0;
}

/** A machine on which an operator has started one process. */
export interface NodePlace {
  nproc: string;
  nnodes: string;
  nodeRank: string;
  masterAddr: string;
  masterPort: string;
}

/**
 * Kubernetes operators give each pod its number and let it start its ranks: PET_NNODES, PET_NODE_RANK and
 * PET_NPROC_PER_NODE, or RANK and WORLD_SIZE without LOCAL_RANK; some set both. Undefined if this process is a rank, or
 * alone.
 */
export function nodeOf(env: Environment, gpus: number): NodePlace | undefined {
  const [nnodes, nodeRank] = [env.PET_NNODES ?? env.WORLD_SIZE, nodeNumber(env)];
  if (env.LOCAL_RANK !== undefined || nnodes === undefined || nodeRank === undefined) return undefined;
  const wanted = Number(env.PET_NPROC_PER_NODE);
  const nproc =
    Number.isInteger(wanted) && wanted > 0 ? wanted : Math.max(1, devicesOf(env.CUDA_VISIBLE_DEVICES, gpus).length);
  const isRank = env.RANK !== undefined && env.WORLD_SIZE !== undefined;
  if (nproc === 1 && (isRank || nnodes === '1')) return undefined;
  const { host, port } = masterOf(env);
  return {
    nproc: String(nproc),
    nnodes,
    nodeRank,
    masterAddr: host,
    masterPort: String(port),
  };
}
