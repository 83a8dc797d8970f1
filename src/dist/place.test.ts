import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { checkPlace, devicesOf, hostsOf, isStartedAgain, nodeOf, readPlace, seconds } from './place.ts';

const master = { MASTER_ADDR: 'node0', MASTER_PORT: '1234' };

describe('readPlace', () => {
  it('is alone where nobody says otherwise', () => {
    expect(readPlace({})).toBeUndefined();
    expect(readPlace({ RANK: '0', WORLD_SIZE: '1', ...master })).toBeUndefined();
  });

  it('reads what torchrun sets', () => {
    const env = { RANK: '5', WORLD_SIZE: '8', LOCAL_RANK: '1', LOCAL_WORLD_SIZE: '4', ...master };
    expect(readPlace({ ...env, TORCHELASTIC_RUN_ID: 'a', TORCHELASTIC_USE_AGENT_STORE: 'True' })).toEqual({
      ...{ rank: 5, size: 8, localRank: 1, localSize: 4, host: 'node0', port: 1234, runId: 'a' },
      ...{ hasStore: true, startedBy: 'torchrun', prefix: '' },
    });
    expect(readPlace({ ...env, TORCHELASTIC_RESTART_COUNT: '2' })).toMatchObject({ prefix: 'restart-2/' });
    expect(readPlace({ ...env, ATTUNE_LAUNCH: 'id' })).toMatchObject({ runId: 'id', startedBy: 'attune launch' });
  });

  it('reads what srun sets, and nothing in a batch script, which is one process', () => {
    const job = { SLURM_PROCID: '5', SLURM_NTASKS: '7', SLURM_LOCALID: '1', SLURM_JOB_ID: '41', SLURM_NODEID: '1' };
    const nodes = { SLURM_STEP_NODELIST: 'gpu[08-09],big', SLURM_STEP_TASKS_PER_NODE: '4,2,1' };
    expect(readPlace({ ...job, ...nodes })).toBeUndefined();
    expect(readPlace({ ...job, ...nodes, SLURM_STEP_ID: '0' })).toMatchObject({
      ...{ rank: 5, size: 7, localRank: 1, localSize: 2, host: 'gpu08', port: 20041, runId: 'slurm-41.0' },
      startedBy: 'slurm',
    });
    expect(readPlace({ ...job, ...nodes, ...master, SLURM_STEP_ID: '0' })).toMatchObject({ host: 'node0', port: 1234 });
  });

  it("takes an operator's RANK as this machine's only rank", () => {
    const place = readPlace({ RANK: '1', WORLD_SIZE: '2', ...master });
    expect(place).toMatchObject({ rank: 1, size: 2, localRank: 0, localSize: 1, startedBy: 'kubernetes' });
  });

  it('says what is wrong', () => {
    expect(() => readPlace({ RANK: '2', WORLD_SIZE: '2', ...master })).toThrow('RANK=2 is not below WORLD_SIZE=2');
    expect(() => readPlace({ RANK: 'x', WORLD_SIZE: '2', ...master })).toThrow('RANK=x is not a count');
    expect(() => readPlace({ RANK: '1', WORLD_SIZE: '2' })).toThrow('MASTER_ADDR is not set');
    const far = { RANK: '1', WORLD_SIZE: '2', ...master, MASTER_PORT: '70000' };
    expect(() => readPlace(far)).toThrow('MASTER_PORT=70000 is not a port');
  });
});

describe('checkPlace', () => {
  it('refuses half of a place, which would train alone', () => {
    expect(() => checkPlace({ RANK: '0' })).toThrow(
      'RANK=0 says that this is one of several processes, but WORLD_SIZE',
    );
    expect(() => checkPlace({ RANK: '1', LOCAL_RANK: '1', ...master })).toThrow('but WORLD_SIZE');
    expect(() => checkPlace({ WORLD_SIZE: '2', ...master })).toThrow('WORLD_SIZE=2 says that');
    expect(() => checkPlace({ PET_NNODES: '2', PET_RDZV_ENDPOINT: 'x' })).toThrow('torchrun --no-python attune train');
    // A batch script is not a task of srun.
    expect(() => checkPlace({ WORLD_SIZE: '2', SLURM_PROCID: '0' })).toThrow(UserError);
  });

  it('takes what torchrun, srun and operators set, and nothing at all', () => {
    const task = { SLURM_PROCID: '1', SLURM_NTASKS: '2', SLURM_LOCALID: '1', SLURM_STEP_ID: '0', SLURM_NODELIST: 'a' };
    for (const env of [
      {},
      { MASTER_ADDR: 'node0', LOCAL_RANK: '0' },
      { WORLD_SIZE: '1' },
      { RANK: '0', WORLD_SIZE: '1' },
      { RANK: '1', WORLD_SIZE: '2', LOCAL_RANK: '1', PET_NNODES: '2', ...master },
      { ...task, WORLD_SIZE: '2' },
      { ...task, RANK: '1' },
      { PET_NNODES: '2', PET_NODE_RANK: '1' },
      { PET_NNODES: '1' },
    ])
      expect(() => checkPlace(env), JSON.stringify(env)).not.toThrow();
  });
});

it('starts the ranks of a machine that an operator has given one process', () => {
  const pod = { RANK: '1', WORLD_SIZE: '2', ...master };
  const node = { nproc: '8', nnodes: '2', nodeRank: '1', masterAddr: 'node0', masterPort: '1234' };
  expect(nodeOf(pod, 8)).toEqual(node);
  expect(nodeOf({ ...pod, CUDA_VISIBLE_DEVICES: '0,1' }, 8)).toEqual({ ...node, nproc: '2' });
  // Newer operators count ranks in WORLD_SIZE and number the machines separately.
  const newer = { PET_NNODES: '2', PET_NODE_RANK: '1', PET_NPROC_PER_NODE: '4' };
  expect(nodeOf({ ...pod, ...newer, WORLD_SIZE: '8' }, 0)).toEqual({ ...node, nproc: '4' });
  expect(nodeOf(pod, 1)).toBeUndefined();
  // The newest have only PET_*.
  const petMaster = { PET_MASTER_ADDR: 'node0', PET_MASTER_PORT: '1234' };
  expect(nodeOf({ ...newer, ...petMaster }, 0)).toEqual({ ...node, nproc: '4' });
  expect(nodeOf({ ...newer, ...petMaster, PET_NPROC_PER_NODE: '1' }, 0)).toEqual({ ...node, nproc: '1' });
  expect(nodeOf({ PET_NNODES: '1', PET_NODE_RANK: '0', PET_NPROC_PER_NODE: '1' }, 0)).toBeUndefined();
  expect(nodeOf({ ...pod, LOCAL_RANK: '0' }, 8)).toBeUndefined();
  expect(nodeOf({}, 8)).toBeUndefined();
});

it('knows a command that may have been started before', () => {
  const rank = { RANK: '0', WORLD_SIZE: '2', LOCAL_RANK: '0', ...master };
  for (const env of [{}, rank, { ...rank, ATTUNE_ATTEMPT: '0', TORCHELASTIC_RESTART_COUNT: '0' }])
    expect(isStartedAgain(env), JSON.stringify(env)).toBe(false);
  for (const name of ['ATTUNE_ATTEMPT', 'TORCHELASTIC_RESTART_COUNT', 'SLURM_RESTART_COUNT'])
    expect(isStartedAgain({ ...rank, [name]: '2' }), name).toBe(true);
  expect(isStartedAgain({ RANK: '0', WORLD_SIZE: '1' })).toBe(true);
  expect(isStartedAgain({ PET_NNODES: '1' })).toBe(true);
});

it('expands lists of machines as Slurm writes them', () => {
  expect(hostsOf('gpu[01-03,7],login')).toEqual(['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']);
  expect(hostsOf('a,b')).toEqual(['a', 'b']);
  expect(hostsOf('rack[1-2]-ib')).toEqual(['rack1-ib', 'rack2-ib']);
});

it('knows the GPUs that ranks may use', () => {
  expect(devicesOf(undefined, 2)).toEqual(['0', '1']);
  expect(devicesOf('3,5', 8)).toEqual(['3', '5']);
  expect(devicesOf('', 8)).toEqual([]);
});

it('reads seconds from the environment, and refuses what is none', () => {
  const read = (LIMIT?: string, least?: 0 | 1) => seconds({ LIMIT }, 'LIMIT', 600, least);
  expect([read(), read(''), read('2.5'), read('0', 0)]).toEqual([600, 600, 2.5, 0]);
  for (const wrong of ['10m', '-1', '0', 'Infinity'])
    expect(() => read(wrong)).toThrow(`LIMIT=${wrong}: expected a number of seconds above 0.`);
  expect(() => read('off', 0)).toThrow('LIMIT=off: expected a number of seconds, or 0 for never.');
});
