/**
 * Wrong use ends in a TensorError that says what was wrong, never in a crash. Calls that might crash run in a child
 * process.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runFile, runProgram } from './child.test-support.ts';
import { native } from './engine/native.ts';
import { type FlashInputs, flashAttention } from './flash.ts';
import { aten, findOperator, liveTensors, ones, type Tensor, TensorError, tensor, zeros } from './index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-hostile-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('messages', () => {
  const use = (body: () => unknown): TensorError => {
    try {
      body();
    } catch (error) {
      expect(error).toBeInstanceOf(TensorError);
      return error as TensorError;
    }
    throw new Error('nothing was thrown');
  };

  it('name the operator, shapes, dtypes and the schema, without C++ frames', () => {
    const error = use(() => ones([2, 3]).matmul(ones([4, 5], { dtype: 'float64' })));
    expect(error.operator).toBe('matmul');
    expect(error.message).toMatch(
      /^matmul: .*\n {2}given: \(float32\[2, 3\], float64\[4, 5\]\)\n {2}schema: aten::matmul\(/,
    );
    expect(error.message).not.toMatch(/Exception raised|frame #|0x[0-9a-f]{6}|\.cpp/);
  });

  it('leave out what libtorch tells its own staff', () => {
    const { message } = use(() => aten('narrow', aten('to_sparse', ones([2])), 0, 0, 1));
    expect(message).not.toMatch(/Facebook|registered at|available for these backends/);
  });

  it.each<[string, () => unknown, RegExp]>([
    [
      'lists that differ in length',
      () => aten('_foreach_copy', [ones([1])], [ones([1]), ones([1])]),
      /"self" has 1 tensors, "src" 2|no operator/,
    ],
    [
      'numbers that are fewer than the tensors',
      () => aten('_foreach_addcdiv_.ScalarList', [ones([1])], [ones([1])], [ones([1])], []),
      /"self" has 1 tensors, "scalars" 0 numbers/,
    ],
    ['a number for a tensor', () => aten('matmul', ones([1]), 3), /argument "other" is Tensor, got 3/],
    [
      'a tensor for a number',
      () => aten('add.Scalar', ones([1]), ones([1])),
      /argument "other" is Scalar, got float32\[1\]/,
    ],
    ['a tensor for a list', () => aten('cat', ones([1])), /argument "tensors" is Tensor\[\], got float32\[1\]/],
    ['a list for a tensor', () => aten('neg', [ones([1])]), /argument "self" is Tensor, got \[float32\[1\]\]/],
    ['a list with something else', () => aten('cat', [ones([1]), 'x']), /"tensors" is a list of tensors.*holds "x"/],
    ['a list with null', () => aten('cat', [ones([1]), null]), /holds null/],
    [
      'a string for a number',
      () => aten('select.int', ones([1]), '0', 0),
      /"dim" \((Sym)?[Ii]nt\): expected an integer/,
    ],
    ['a fraction for an integer', () => aten('select.int', ones([1]), 0.5, 0), /expected an integer, got 0.5/],
    ['NaN for an integer', () => ones([2]).narrow(0, Number.NaN, 1), /expected an integer/],
    ['a bigint of 65 bits', () => aten('add.Scalar', tensor([1n]), 2n ** 64n), /64 bits/],
    [
      'a number for a flag',
      () => aten('sum.dim_IntList', ones([1]), [0], 1),
      /"keepdim" \(bool\): expected true or false/,
    ],
    ['a number for a name', () => aten('gelu', ones([1]), { approximate: 3 }), /expected a string/],
    ['a device that is none', () => ones([1]).to({ device: 'tpu:0' }), /tpu/],
    ['a CUDA device without CUDA', () => zeros([1], { device: 'cuda:99' }), /CUDA|cuda/],
    ['a dtype that is none', () => ones([1]).to('float33' as never), /"float33" is neither a dtype/],
    ['an object', () => aten('add.Scalar', ones([1]), new Date(0)), /expected a number/],
    ['a symbol', () => aten('add.Scalar', ones([1]), Symbol('s')), /expected a number/],
    ['a function', () => aten('view', ones([1]), () => [1]), /expected an array/],
    ['shapes that do not broadcast', () => ones([2]).add(ones([3])), /size of tensor a \(2\) must match/],
    ['a view that cannot be', () => ones([2, 3]).t().view(6), /view/],
    ['an index out of range', () => aten('gather', ones([2]), 0, tensor([5n])), /out of bounds/],
    ['embedding rows that are not there', () => aten('embedding', ones([2, 2]), tensor([-1n])), /out of range/],
    ['integers where floats are wanted', () => tensor([1n]).softmax(0), /softmax/],
  ])('%s', (_, body, message) => {
    expect(use(body).message).toMatch(message);
  });

  it.each([1e15, 2 ** 53 - 1])('an allocation of %f elements', (size) => {
    const before = liveTensors();
    expect(use(() => zeros([size])).message).toMatch(/zeros/);
    expect(use(() => ones([2]).expand(2).repeatInterleave(size, 0)).message).toMatch(/./);
    expect(use(() => zeros([size, size])).message).toMatch(/zeros/);
    expect(liveTensors()).toBeLessThanOrEqual(before + 4);
  });

  it("an exception of the caller's own comes through as it is", () => {
    const trap = Object.defineProperty([1, 2], 0, {
      get() {
        throw new RangeError('mine');
      },
    });
    expect(() => aten('view', ones([2]), trap)).toThrow(RangeError);
  });

  it('a getter that resolves other operators, or frees the tensor in use, does no harm', () => {
    const victim = ones([2]);
    let frees = false;
    const shape = Object.defineProperty([0], 0, {
      get() {
        for (const name of native.overloads('').slice(0, 500)) native.resolve(...(split(name) as [string, string]));
        if (frees) victim.dispose();
        return 2;
      },
    });
    expect(aten('view', victim, shape).shape).toEqual([2]);
    frees = true;
    expect(() => aten('view', victim, shape)).toThrow(/already freed/);
    expect(victim.isFreed).toBe(true);
  });
});

describe('internal operators', () => {
  const x = ones([2, 3]);

  it.each([
    ['_reshape_alias', 'Use "reshape".'],
    ['aten::_softmax', 'Use "softmax".'],
    ['_local_scalar_dense', 'Use "item".'],
    ['convolution_backward', 'Call "convolution" and then backward\\(\\) or gradients\\(\\).'],
    ['native_batch_norm', 'Use "batch_norm".'],
    ['_flash_attention_forward', 'end the process.$'],
    ['quantized::linear', 'end the process.$'],
  ])('%s is refused, saying what to use', (name, advice) => {
    if (native.overloads(name.includes('::') ? name : `aten::${name}`).length === 0) return;
    const refusal = new RegExp(`^${name} is internal to libtorch: .*${advice}`);
    expect(() => aten(name, x, [6], [10 ** 9])).toThrow(TensorError);
    expect(() => aten(name, x, [6], [10 ** 9])).toThrow(refusal);
    expect(() => findOperator(name)).toThrow(refusal); // the second time too, whether cached or not
  });

  it('are not suggested', () => {
    expect(() => aten('_reshape_allias', x)).toThrow(/no operator "_reshape_allias" in this libtorch\.(?!.*"_)/);
  });

  it.each<[string, Partial<FlashInputs>, RegExp]>([
    ['no heads', { k: ones([6, 0, 8]) }, /k .* does not fit q|no flash kernels/],
    ['queries of another rank', { q: ones([6, 8]) }, /q has to be|no flash kernels/],
    ['values of another shape', { v: ones([5, 2, 8]) }, /v .* does not fit k|no flash kernels/],
    ['lengths of another kind', { cuSeqlens: ones([2]) }, /cuSeqlens has to be int32|no flash kernels/],
    ['a length that is too long', { longest: 7 }, /longest is 7 of 6 tokens|no flash kernels/],
  ])('flash attention checks before libtorch does: %s', (_, fields, message) => {
    const cuSeqlens = tensor(Int32Array.of(0, 6));
    const inputs = { q: ones([6, 4, 8]), k: ones([6, 2, 8]), v: ones([6, 2, 8]), cuSeqlens };
    expect(() => flashAttention({ ...inputs, longest: 6, scale: 1, back: null, dropout: 0, ...fields })).toThrow(
      message,
    );
  });

  if (native.overloads('aten::_fused_adamw_').length > 0) {
    const list = (value: Tensor = x.clone()) => [value];
    it.each<[string, unknown[][], boolean, RegExp]>([
      [
        'a gradient of another size',
        [list(), list(ones([1])), list(), list(), [], list(tensor(1))],
        false,
        /"grads"\[0\] does/,
      ],
      [
        'one that overlaps',
        [list(), list(ones([1]).expand(2, 3)), list(), list(), [], list(tensor(1))],
        false,
        /"grads"\[0\] does/,
      ],
      [
        'another order of elements',
        [list(), list(ones([3, 2]).t()), list(), list(), [], list(tensor(1))],
        false,
        /"grads"\[0\] does/,
      ],
      [
        'no step count',
        [list(), list(), list(), list(), [], list(zeros([0]))],
        false,
        /"state_steps"\[0\] has to be one float32/,
      ],
      ['amsgrad without its list', [list(), list(), list(), list(), [], list(tensor(1))], true, /"max_exp_avg_sqs" 0/],
    ])('the fused optimiser is given %s', (_, lists, amsgrad, message) => {
      expect(() => aten('_fused_adamw_', ...lists, 0.1, 0.9, 0.99, 0, 1e-8, amsgrad, false)).toThrow(message);
    });

    it('the fused optimiser is given an empty loss scale', () => {
      const lists = [list(), list(), list(), list(), [], list(tensor(1))];
      const call = () =>
        aten('_fused_adamw_', ...lists, 0.1, 0.9, 0.99, 0, 1e-8, false, false, { grad_scale: zeros([0]) });
      expect(call).toThrow(/"grad_scale" has to be one float32/);
    });
  }
});

function split(name: string): string[] {
  const dot = name.indexOf('.');
  return dot < 0 ? [name, ''] : [name.slice(0, dot), name.slice(dot + 1)];
}

describe('the addon itself', () => {
  it('made-up handles are errors', () => {
    for (const handle of [
      -1,
      -(2 ** 31),
      2 ** 31 - 1,
      123_456_789,
      2 ** 40,
      Number.NaN + 4e6,
      {},
      null,
      undefined,
      'x',
      1n,
      [],
      Symbol('s'),
    ]) {
      expect(() => native.bytesOf(handle as number), String(handle)).toThrow();
      expect(() => native.free(handle as number)).toThrow();
    }
    expect(() => native.call(10 ** 6)).toThrow(/not an operator/);
    expect(() => native.call(-1)).toThrow(/not an operator/);
  });

  it('a freed handle never comes back to life, however often its slot is used again', () => {
    const made = new Set<number>();
    for (let i = 0; i < 2000; i++) {
      const handle = native.fromBytes(new Uint8Array(1), 'uint8', [1]);
      expect(made.has(handle)).toBe(false);
      made.add(handle);
      native.free(handle);
    }
    const last = native.fromBytes(new Uint8Array(1), 'uint8', [1]);
    for (const stale of made) expect(() => native.meta(stale)).toThrow(/after it was freed/);
    native.free(last);
  });

  it('counts that lie are errors', () => {
    expect(() => native.freeAll(new Float64Array(2), 3)).toThrow(/fewer handles/);
    expect(() => native.freeAll(new Float64Array(2), -1)).toThrow(/fewer handles/);
    expect(() => native.freeAll(new Float64Array(2), -(2n ** 62n) as never)).toThrow(/fewer handles/);
  });

  it('every function takes every kind of garbage', () => {
    const log = join(folder, 'log-garbage');
    const result = runFile('src/tensor/garbage.test-support', log);
    expect(result.signal, `crashed in ${readFileSync(log, 'utf8')}: ${result.stderr}`).toBeNull();
    expect(result.stderr).toBe('');
    expect(JSON.parse(result.stdout)).toMatchObject({ crashed: false, sane: true });
  });
});

describe('operators that libtorch walks out of bounds in', () => {
  it.each([
    'histogramdd',
    'histogramdd.int_bins',
    'histogramdd.TensorList_bins',
    'rrelu_with_noise',
    'rrelu_with_noise_',
    'embedding_bag',
    'segment_reduce',
    'upsample_bilinear2d',
    'fractional_max_pool2d.output',
    'max_pool1d',
    'lstm.input',
    'lu_unpack',
    'linalg_ldl_solve',
    'gradient.tensorarrayint',
    'ctc_loss.IntList',
    'sspaddmm',
    'nll_loss_forward',
    'sparse_csc_tensor.ccol_row_value',
    'fused_moving_avg_obs_fake_quant',
    'tril.out',
    'triu.out',
    'set_.source_Storage_storage_offset',
  ])('refuses %s', (name) => expect(() => aten(name)).toThrow(/internal to libtorch/));
});

describe('counts of repetitions', () => {
  const counts = tensor([0n, 3n, -3n]);
  it.each<[string, () => unknown]>([
    ['alone', () => aten('repeat_interleave.Tensor', counts)],
    ['with the size that they come to', () => aten('repeat_interleave.Tensor', counts, 0)],
    ['of rows', () => aten('repeat_interleave.self_Tensor', ones([3, 2]), counts, 0)],
  ])('negative ones are refused: %s', (_, body) => expect(body).toThrow(/"repeats" holds a negative number/));

  it('others are taken', () => {
    expect(aten<Tensor>('repeat_interleave.Tensor', tensor([2n, 0n, 1n])).tolist()).toEqual([0, 0, 2]);
    expect(aten<Tensor>('repeat_interleave.self_Tensor', ones([2, 2]), tensor([3n, 1n]), 0).shape).toEqual([4, 2]);
  });
});

describe('sizes that take no memory and no end of time', () => {
  it.each<[string, () => unknown]>([
    ['an output of 10^15 rows of nothing', () => aten('adaptive_max_pool2d', ones([1, 1, 3, 3]), [1e15, 0])],
    ['one of three sides', () => aten('adaptive_max_pool3d', ones([1, 1, 3, 3, 3]), [1e7, 1e7, 0])],
    ['an average of them', () => aten('adaptive_avg_pool2d', ones([1, 1, 3, 3]), [0, 1e15])],
    ['a tensor of 10^15 rows of nothing', () => aten('sort', zeros([1e15, 0]), 1)],
    ['such a tensor in a list', () => aten('cat', [ones([1, 0]), zeros([1e15, 0])])],
  ])('%s is refused', (_, body) => expect(body).toThrow(/no elements and more rows than can be walked over/));

  it.each<[string, () => unknown]>([
    ['a kernel', () => aten('im2col', ones([1, 1, 3, 3]), [2 ** 32 + 1, 1], [2 ** 32, 1], [0, 0], [1, 1])],
    ['a padding', () => aten('conv2d', ones([1, 1, 3, 3]), ones([1, 1, 2, 2]), null, [1, 1], [2 ** 53 - 1, 0])],
  ])('%s whose products overflow is refused', (_, body) => expect(body).toThrow(/more than the largest window/));

  it('an empty batch of any usual size is taken', () => {
    expect(aten('sort', zeros([0, 4096, 262_144]), 1)).toHaveLength(2);
    expect(aten('adaptive_avg_pool2d', ones([1, 1, 3, 3]), [7, 0]).shape).toEqual([1, 1, 7, 0]);
  });
});

/**
 * Operators that make a list as long as an argument says. If `new` finds no memory (10^15 entries), AddressSanitizer
 * ends the process instead of throwing.
 */
const tooLarge = process.env.ATTUNE_SANITIZE === '1' ? 'aten::unsafe_chunk,aten::tensor_split.sections' : '';

describe('fuzz', () => {
  it.each([1, 2])('every operator with random arguments, or a refusal (seed %i)', (seed) => {
    const log = join(folder, `log-${seed}`);
    const result = runFile('src/tensor/fuzz.test-support', String(seed), log);
    expect(result.signal, `crashed in ${readFileSync(log, 'utf8').trim()}: ${result.stderr}`).toBeNull();
    expect(result.stderr).toBe('');
    const report = JSON.parse(result.stdout) as {
      calls: number;
      succeeded: number;
      refused: string[];
      unexpected: string[];
      left: number;
    };
    expect(report.unexpected).toEqual([]);
    expect(report.calls).toBeGreaterThan(1800);
    expect(report.calls + report.refused.length).toBe(native.overloads('').length);
    expect(report.refused.filter((name) => /^(aten::(?!_|\w*_backward)|attune::)/.test(name)).length).toBeLessThan(240);
    expect(report.succeeded).toBeGreaterThan(200); // otherwise only the first check of each is exercised
    expect(report.left).toBe(0);
  });

  it('the direct way to an operator gives what the boxed one gives, refusals included', () => {
    const log = join(folder, 'log-compare');
    const result = runFile('src/tensor/fuzz.test-support', '1', log, '10', tooLarge, '', 'compare');
    const crashed = `crashed in ${readFileSync(log, 'utf8').trim()}: ${result.stderr}`;
    expect({ signal: result.signal, status: result.status }, crashed).toEqual({ signal: null, status: 0 });
    const report = JSON.parse(result.stdout) as {
      calls: number;
      succeeded: number;
      unexpected: string[];
      left: number;
    };
    expect(report.unexpected).toEqual([]);
    expect(report.calls).toBeGreaterThan(5000);
    expect(report.succeeded).toBeGreaterThan(1500);
    expect(report.left).toBe(0);
  });
});

describe('other threads', () => {
  it('a worker is told that the engine is taken', () => {
    const result = runFile('src/tensor/worker.test-support', 'taken');
    expect(result.signal, result.stderr).toBeNull();
    const refused = expect.stringMatching(/one thread only/);
    expect(JSON.parse(result.stdout)).toEqual({ workers: [refused, refused], own: 2 });
  });

  it('a worker may have it, and leaves it to the next', () => {
    const result = runFile('src/tensor/worker.test-support');
    expect(result.signal, result.stderr).toBeNull();
    expect(JSON.parse(result.stdout)).toEqual({ workers: [2, 2], own: 2 });
  });
});

it('a mapped file that another program cuts short is an error, not the end of the process', () => {
  const result = runProgram(`
    import { truncateSync } from 'node:fs';
    import { ones, openSafetensors, randn, writeSafetensors } from './src/tensor/index.ts';
    const path = ${JSON.stringify(join(folder, 'shrinking.safetensors'))};
    writeSafetensors(path, [['a', randn([300, 300])], ['b', ones([300, 300])]]);
    const file = openSafetensors(path);
    const [a, b] = [file.tensor('a'), file.tensor('b')];
    truncateSync(path, 4096);
    const tried = [() => b.sum(), () => a.matmul(a), () => b.data(), () => file.tensor('b').add(1)].map((use) => {
      try { use(); return 'worked'; } catch (error) { return error.name + ': ' + error.message; }
    });
    console.log(JSON.stringify({ tried, after: ones([2]).sum().item() }));
  `);
  expect(result.signal, result.stderr).toBeNull();
  const { tried, after } = JSON.parse(result.stdout) as { tried: string[]; after: number };
  expect(tried[0]).toMatch(/^TensorError: sum: a file that is mapped into memory was cut short/);
  expect(tried[1]).toMatch(/cut short/);
  expect(after).toBe(2);
});
