import { afterEach, describe, expect, it } from 'vitest';
import { openblasCoreType } from './engine/native.ts';
import { askedThreads } from './engine/threads.ts';
import {
  aten,
  defaultDevice,
  engineInfo,
  libtorchVersion,
  ones,
  randn,
  rngState,
  seed,
  setDeterministic,
  setMatmulPrecision,
  setRngState,
  setThreads,
  TensorError,
  tensor,
  threads,
} from './index.ts';

describe('random numbers', () => {
  it('a seed gives the same numbers, as in PyTorch', () => {
    seed(42);
    // torch.manual_seed(42); torch.randn(3)
    const expected = [0.3366904, 0.1288094, 0.2344624];
    for (const [i, value] of randn([3]).numbers().entries()) expect(value).toBeCloseTo(expected[i] as number, 6);
    seed(43);
    const other = randn([3]).numbers();
    seed(42);
    expect(randn([3]).numbers()).not.toEqual(other);
  });

  it('a saved state goes on where it was', () => {
    seed(1);
    randn([5]);
    const state = rngState();
    expect(state).toBeInstanceOf(Uint8Array);
    const next = randn([20]).numbers();
    randn([7]);
    setRngState(state);
    expect(randn([20]).numbers()).toEqual(next);
  });

  it('refuses states and seeds that are none', () => {
    expect(() => setRngState(new Uint8Array(3))).toThrow(TensorError);
    expect(() => rngState('cuda:7')).toThrow(TensorError);
    expect(() => rngState('nonsense')).toThrow(TensorError);
    expect(() => seed(1.5)).toThrow(/seed: expected an integer, got 1.5/);
    expect(() => seed('x' as never)).toThrow(TensorError);
  });
});

describe('threads', () => {
  const before = threads();
  afterEach(() => setThreads(before));

  it('can be set, within reason', () => {
    setThreads(2);
    expect(threads()).toBe(2);
    expect(
      ones([64, 64])
        .matmul(ones([64, 64]))
        .sum()
        .item(),
    ).toBe(64 ** 3);
    expect(() => setThreads(0)).toThrow(/1 to 1024/);
    expect(() => setThreads(1e9)).toThrow(/1 to 1024/);
    expect(() => setThreads(1.5)).toThrow(TensorError);
  });
});

describe('determinism', () => {
  afterEach(() => setDeterministic(false));

  it('refuses an operator without a deterministic form, and only then', () => {
    // Two values for one place: which one stays depends on the order, unless they are added.
    const put = (accumulate: boolean) => aten('put_', ones([4]), tensor([1n, 1n]), tensor([2, 3]), accumulate);
    setDeterministic(true);
    expect(() => put(false)).toThrow(TensorError);
    expect(() => put(false)).toThrow(
      /^put_: put_ does not have a deterministic implementation, which setDeterministic\(true\) asks for\n {2}given: /,
    );
    expect(put(true).tolist()).toEqual([1, 6, 1, 1]);
    setDeterministic(false);
    expect([2, 3]).toContain(put(false).numbers()[1]);
    expect(put(true).tolist()).toEqual([1, 6, 1, 1]);
  });

  it('the mode is true or false', () => {
    expect(() => setDeterministic('yes' as never)).toThrow(TensorError);
    expect(() => setDeterministic('yes' as never)).toThrow(/setDeterministic: expected true or false/);
  });

  it('gives the same bits twice', () => {
    setDeterministic(true);
    seed(3);
    const x = randn([64, 64]);
    const once = x.matmul(x).softmax(-1).data();
    expect(x.matmul(x).softmax(-1).data()).toEqual(once);
  });
});

describe('what is here', () => {
  it('says it', () => {
    const info = engineInfo();
    expect(info.libtorch).toMatch(/^\d+\.\d+/);
    expect(info.devices[0]).toMatchObject({ name: 'cpu' });
    expect(info.threads).toBe(threads());
    const [major, minor] = libtorchVersion();
    expect(info.libtorch.startsWith(`${major}.${minor}`)).toBe(true);
    expect(defaultDevice()).toBe(info.cuda ? 'cuda:0' : 'cpu');
  });

  it('precision has three names', () => {
    setMatmulPrecision('high');
    setMatmulPrecision('highest');
    expect(() => setMatmulPrecision('lowest' as never)).toThrow(/highest, high or medium/);
  });

  it('picks the OpenBLAS kernel that Debian misses', () => {
    const flags = (text: string) => new Set(text.split(' '));
    expect(openblasCoreType('x64', flags('avx2 avx512f avx512bw avx512vl'))).toBe('SkylakeX');
    expect(openblasCoreType('x64', flags('avx2 avx512f'))).toBe('Haswell');
    expect(openblasCoreType('x64', flags('sse4_2'))).toBeUndefined();
    expect(openblasCoreType('arm64', flags('asimd'))).toBeUndefined();
  });
});

it('takes the threads that the environment asks for, and refuses what is no number of them', () => {
  expect(askedThreads({ ATTUNE_THREADS: '3', OMP_NUM_THREADS: '2' })).toBe(3);
  expect(askedThreads({ ATTUNE_THREADS: '', OMP_NUM_THREADS: '2' })).toBe(2);
  for (const shared of ['4,2', '0', undefined]) expect(askedThreads({ OMP_NUM_THREADS: shared })).toBeUndefined();
  for (const own of ['abc', '0', '1.5', '-1'])
    expect(() => askedThreads({ ATTUNE_THREADS: own })).toThrow(`ATTUNE_THREADS=${own}: expected a whole number`);
});
