/**
 * Operators called with their arguments in shared memory give the same results and the same errors as boxed calls
 * (hostile.test.ts has more).
 */
import { describe, expect, it } from 'vitest';
import { native } from './engine/native.ts';
import { arange, aten, liveTensors, ones, scope, TensorError, tensor, zeros } from './index.ts';
import { invoke, invokeBoxed, operator } from './operator.ts';

/** The operators that models, losses and optimisers call most. */
const IN_USE = [
  ...[
    'add.Tensor',
    'add.Scalar',
    'sub.Tensor',
    'mul.Tensor',
    'mul.Scalar',
    'div.Tensor',
    'div.Scalar',
    'pow.Tensor_Scalar',
  ],
  ...[
    'exp',
    'log',
    'neg',
    'sqrt',
    'rsqrt',
    'sigmoid',
    'log_sigmoid',
    'silu',
    'relu',
    'clamp',
    'minimum',
    'eq.Scalar',
    'where.self',
  ],
  ...['matmul', 'embedding', 'layer_norm', 'dropout', 'softmax.int', 'log_softmax.int', 'cumsum'],
  ...[
    'sum',
    'sum.dim_IntList',
    'mean',
    'mean.dim',
    'amax',
    'logsumexp',
    'argmax',
    'std',
    'linalg_vector_norm',
    'topk',
    'sort',
  ],
  ...[
    'view',
    'reshape',
    'expand',
    'permute',
    'transpose.int',
    'unsqueeze',
    'squeeze.dim',
    'select.int',
    'narrow',
    'slice.Tensor',
  ],
  ...[
    'cat',
    'stack',
    'split.Tensor',
    'split_with_sizes',
    'unbind.int',
    'chunk',
    'gather',
    'index_select',
    'index.Tensor',
  ],
  ...[
    'masked_fill.Scalar',
    'repeat_interleave.self_int',
    'to.dtype_layout',
    'clone',
    'contiguous',
    'detach',
    'zeros_like',
  ],
  ...['zeros', 'ones', 'full', 'empty.memory_format', 'arange.start_step', 'randn'],
  ...[
    'add_.Tensor',
    'mul_.Scalar',
    'mul_.Tensor',
    'div_.Scalar',
    'copy_',
    'zero_',
    'fill_.Scalar',
    'clamp_',
    'lerp_.Scalar',
  ],
  ...['addcmul_', 'addcdiv_', 'index_add_', 'index_copy_', 'normal_', 'uniform_'],
  ...['attune::linear', 'attune::rms_norm', 'attune::rope', 'attune::swiglu', 'attune::linear_logprob'],
];

describe('the frame', () => {
  it.each(IN_USE)('%s has a signature that is called directly', (name) => {
    expect(operator(name).direct, operator(name).schema).toBe(true);
  });

  it('takes defaults, null, booleans, lists, dtypes and devices', () => {
    const x = tensor([
      [1, 2],
      [3, 4],
    ]);
    expect(aten('add.Tensor', x, x).tolist()).toEqual(aten('add.Tensor', x, x, 1).tolist());
    expect(aten('sum.dim_IntList', x, 0).tolist()).toEqual([4, 6]);
    expect(aten('sum.dim_IntList', x, [0, 1], true).tolist()).toEqual([[10]]);
    expect(aten('sum.dim_IntList', x, null).item()).toBe(10);
    expect(aten('clamp', x, undefined, 2).tolist()).toEqual([
      [1, 2],
      [2, 2],
    ]);
    expect(aten('clamp', x, null, 2).tolist()).toEqual([
      [1, 2],
      [2, 2],
    ]);
    expect(aten('cat', [x, x], 1).shape).toEqual([2, 4]);
    expect(aten('index.Tensor', x, [null, tensor([1n])]).tolist()).toEqual([[2], [4]]);
    expect(aten('to.dtype_layout', x, 'int64', undefined, 'cpu').dtype).toBe('int64');
    expect(aten('zeros', [2], { dtype: 'bool', device: 'cpu' }).tolist()).toEqual([false, false].map(Number));
    expect(aten('add.Scalar', tensor([true]), true).dtype).toBe('bool');
    expect(aten('slice.Tensor', x, 1, 1).tolist()).toEqual([[2], [4]]);
    expect((aten('split.Tensor', x, 1, 1) as unknown as unknown[]).length).toBe(2);
    expect(x.add_(1)).toBe(x);
  });

  it('a list that is too long for it goes the other way', () => {
    const parts = Array.from({ length: 600 }, (_, i) => tensor([i]));
    expect(aten('cat', parts).sum().item()).toBe((600 * 599) / 2);
    expect(zeros([1]).expand(600, 1).reshape(600).shape).toEqual([600]);
  });

  it('an argument whose getter calls another operator does not disturb the call', () => {
    const x = arange(0, 6);
    const shape = [0, 3];
    Object.defineProperty(shape, 0, { get: () => Number(ones([2]).sum().item()) });
    expect(invoke(operator('view'), [x, shape])).toHaveProperty('shape', [2, 3]);
    const calling = ones([2]);
    const { handle } = calling;
    Object.defineProperty(calling, 'handle', { get: () => (ones([5]).mul(7).isFreed ? -1 : handle) });
    expect(ones([2]).add(calling).tolist()).toEqual([2, 2]);
    Object.defineProperty(calling, 'handle', { value: handle, writable: true });
  });

  it('refuses in the words of the boxed call', () => {
    const [x, freed, empty] = [ones([2, 3]), ones([1]), zeros([0])];
    freed.dispose();
    const wrong: [string, unknown[]][] = [
      ['add.Tensor', [x]],
      ['add.Tensor', [x, freed]],
      ['add.Tensor', [x, null]],
      ['add.Tensor', [x, x, x]],
      ['add.Tensor', [x, x, 1, 1]],
      ['add.Tensor', [x, ones([4])]],
      ['add.Tensor', [x, 3]],
      ['mul.Scalar', [x, 'two']],
      ['view', [x, [1.5]]],
      ['view', [x, 6]],
      ['view', [x, ['6']]],
      ['view', [x, [2 ** 53 + 2]]],
      ['sum.dim_IntList', [x, [0], 1]],
      ['cat', [[x, freed]]],
      ['cat', [[x, 1]]],
      ['cat', [[]]],
      ['max', [empty]],
      ['softmax.int', [x, 0, 'float99']],
      ['to.dtype_layout', [x, 'cpu']],
      ['zeros', [[2], { device: 'cuda:99' }]],
    ];
    const before = liveTensors();
    const refusal = (call: () => unknown): string => {
      try {
        return `no refusal: ${call()}`;
      } catch (error) {
        expect(error).toBeInstanceOf(TensorError);
        return (error as Error).message;
      }
    };
    for (const [name, args] of wrong) {
      const direct = refusal(() => invoke(operator(name), args));
      expect(direct, name).not.toMatch(/^no refusal/);
      expect(direct).toBe(refusal(() => invokeBoxed(operator(name), args)));
    }
    expect(liveTensors()).toBe(before);
  });

  it('what is in it is checked, whoever wrote it', () => {
    expect(() => native.useFrame(new Float64Array(3))).toThrow(/Float64Array of 512/);
    expect(() => native.useFrame([] as unknown as Float64Array)).toThrow(/Float64Array/);
  });

  it('frees what a scope has made, and nothing twice', () => {
    const before = liveTensors();
    const kept = scope(() => {
      const x = ones([4]);
      for (let i = 0; i < 3000; i++) x.add(i);
      return x.mul(2);
    });
    expect(liveTensors()).toBe(before + 1);
    expect(kept.tolist()).toEqual([2, 2, 2, 2]);
    kept.dispose();
    expect(liveTensors()).toBe(before);
  });
});
