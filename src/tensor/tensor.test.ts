/**
 * What goes into a tensor and what comes out: typed arrays of every dtype, nested arrays, shapes, indexing, printing.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { native } from './engine/native.ts';
import {
  arange,
  aten,
  cat,
  type DType,
  empty,
  eye,
  full,
  integers,
  libtorchVersion,
  ones,
  randint,
  randn,
  seed,
  stack,
  Tensor,
  TensorError,
  tensor,
  where,
  zeros,
  zerosLike,
} from './index.ts';
import { internalOperator, invoke, type Operator } from './operator.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-tensor-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('typed arrays', () => {
  it.each<[DType, ArrayBufferView]>([
    ['float32', Float32Array.of(1.5, -0, Number.NaN, Number.POSITIVE_INFINITY)],
    ['float64', Float64Array.of(Math.PI, 5e-324)],
    ['float16', Float16Array.of(0.5, 65504, -2)],
    ['int64', BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n))],
    ['int32', Int32Array.of(2 ** 31 - 1, -(2 ** 31))],
    ['int16', Int16Array.of(32767, -32768)],
    ['int8', Int8Array.of(127, -128)],
    ['uint8', Uint8Array.of(0, 255)],
  ])('%s there and back, bit for bit', (dtype, array) => {
    const made = tensor(array);
    expect(made.dtype).toBe(dtype);
    expect(made.data()).toEqual(array);
    expect(made.data().constructor).toBe(array.constructor);
  });

  it('bfloat16 as its bits, and as numbers', () => {
    const bits = Uint16Array.of(0x3f80, 0xc000, 0x7f80); // 1, −2, ∞
    const made = tensor(bits);
    expect(made.dtype).toBe('bfloat16');
    expect(made.data()).toEqual(bits);
    expect(made.tolist()).toEqual([1, -2, Number.POSITIVE_INFINITY]);
    expect(tensor([1.00390625], { dtype: 'bfloat16' }).item()).toBe(1); // half a unit: rounds to even
  });

  it('bool takes any byte but holds 0 and 1 only', () => {
    const made = tensor(Uint8Array.of(0, 1, 7, 255), { dtype: 'bool' });
    expect(made.data()).toEqual(Uint8Array.of(0, 1, 1, 1));
    expect(made.sum().item()).toBe(3);
  });

  it('float8 and unsigned where this libtorch has them, a clear error where not', () => {
    const [major, minor] = libtorchVersion();
    if (major > 2 || (major === 2 && minor >= 3)) {
      expect(tensor(Uint16Array.of(65535), { dtype: 'uint16' }).data()).toEqual(Uint16Array.of(65535));
      expect(tensor(Uint32Array.of(2 ** 32 - 1)).data()).toEqual(Uint32Array.of(2 ** 32 - 1));
      expect(tensor(BigUint64Array.of(2n ** 64n - 1n)).data()).toEqual(BigUint64Array.of(2n ** 64n - 1n));
      expect(tensor([1.5, -448], { dtype: 'float8_e4m3fn' }).tolist()).toEqual([1.5, -448]);
      expect(tensor(Uint8Array.of(0x38), { dtype: 'float8_e4m3fn' }).tolist()).toEqual([1]);
    } else {
      expect(() => tensor(Uint32Array.of(1))).toThrow(/this libtorch has no dtype "uint32"/);
      expect(() => zeros([1], { dtype: 'float8_e5m2' })).toThrow(/no dtype "float8_e5m2"/);
    }
  });

  it('a part of a buffer, at any offset, and none at all', () => {
    const bytes = new Uint8Array([9, 9, 1, 2, 3, 9]);
    expect(tensor(bytes.subarray(2, 5)).tolist()).toEqual([1, 2, 3]);
    expect(tensor(new Float32Array(0)).shape).toEqual([0]);
    expect(tensor(new Float32Array(6), { shape: [2, 3] }).shape).toEqual([2, 3]);
    expect(tensor(Float32Array.of(1, 2), { dtype: 'int64' }).data()).toEqual(BigInt64Array.of(1n, 2n));
  });

  it('is a copy both ways', () => {
    const source = Float32Array.of(1, 2);
    const made = tensor(source);
    source[0] = 9;
    const read = made.data();
    read[1] = 9;
    expect(made.tolist()).toEqual([1, 2]);
  });

  it('refuses what does not fit', () => {
    expect(() => tensor(Float32Array.of(1, 2, 3), { shape: [2, 2] })).toThrow(/12 bytes, its shape and dtype need 16/);
    expect(() => tensor(Float32Array.of(1), { shape: [-1] })).toThrow(/negative size/);
    expect(() => tensor(new Float32Array(1), { shape: [2 ** 40, 2 ** 40] })).toThrow(/too large/);
    expect(() => tensor(new DataView(new ArrayBuffer(8)))).toThrow(/DataView has no dtype/);
    const detached = Float32Array.of(1, 2);
    structuredClone(detached, { transfer: [detached.buffer] });
    expect(tensor(detached).shape).toEqual([0]);
  });
});

describe('numbers and nested arrays', () => {
  it('takes the dtype from the first element', () => {
    expect(tensor([1, 2]).dtype).toBe('float32');
    expect(tensor([true]).dtype).toBe('bool');
    expect(tensor([1n]).dtype).toBe('int64');
    expect(tensor(3).shape).toEqual([]);
    expect(tensor([[], []]).shape).toEqual([2, 0]);
    expect(tensor([2 ** 53 - 1], { dtype: 'int64' }).data()).toEqual(BigInt64Array.of(2n ** 53n - 1n));
  });

  it('makes int64 tensors out of plain integers', () => {
    expect(integers([3, -1, 2 ** 40]).data()).toEqual(BigInt64Array.of(3n, -1n, 2n ** 40n));
    expect(integers(Uint8Array.of(0, 255)).numbers()).toEqual([0, 255]);
    expect(integers(new Set([4, 5])).dtype).toBe('int64');
    expect(integers([1, 2, 3, 4], { shape: [2, 2] }).shape).toEqual([2, 2]);
    expect(() => integers([1.5])).toThrow(/1.5 is not an integer/);
  });

  it('gives nested arrays back', () => {
    const nested = [
      [
        [1, 2],
        [3, 4],
        [5, 6],
      ],
    ];
    expect(tensor(nested).tolist()).toEqual(nested);
    expect(tensor(7).tolist()).toBe(7);
    expect(zeros([2, 0, 3]).tolist()).toEqual([[], []]);
    expect(zeros([0, 3]).tolist()).toEqual([]);
    expect(
      tensor([
        [1, 2],
        [3, 4],
      ])
        .t()
        .tolist(),
    ).toEqual([
      [1, 3],
      [2, 4],
    ]);
  });

  it.each([
    [[[1], [1, 2]], /ragged/],
    [[1, [2]], /ragged/],
    [[[1, 2], 3], /ragged/],
    [['1'], /string is not a number/],
    [[null], /null is not a number/],
    [undefined, /undefined is not a number/],
  ])('refuses %j', (data, message) => {
    expect(() => tensor(data as never)).toThrow(message);
    expect(() => tensor(data as never)).toThrow(TensorError);
  });

  it('does not round to integers by itself', () => {
    expect(() => tensor([1.5], { dtype: 'int64' })).toThrow(/1.5 is not an integer/);
    expect(() => tensor([Number.NaN], { dtype: 'int64' })).toThrow(/NaN/);
  });
});

describe('creation', () => {
  it('fills', () => {
    expect(
      ones([2])
        .add(zeros([2]))
        .tolist(),
    ).toEqual([1, 1]);
    expect(full([2], 2.5).tolist()).toEqual([2.5, 2.5]);
    expect(full([1], 3).dtype).toBe('float32');
    expect(arange(0, 7, 3).tolist()).toEqual([0, 3, 6]);
    expect(eye(2).tolist()).toEqual([
      [1, 0],
      [0, 1],
    ]);
    expect(empty([2, 3], { dtype: 'bfloat16' }).dtype).toBe('bfloat16');
    expect(zerosLike(ones([2], { dtype: 'int32' })).dtype).toBe('int32');
    expect(cat([ones([1]), zeros([2])]).tolist()).toEqual([1, 0, 0]);
    expect(stack([ones([2]), zeros([2])], 1).tolist()).toEqual([
      [1, 0],
      [1, 0],
    ]);
    const condition = tensor([true, false]);
    expect(where(condition, ones([2]), 5).tolist()).toEqual([1, 5]);
    expect(where(condition, 7, zeros([2])).tolist()).toEqual([7, 0]);
    expect(where(condition, 7, 5).tolist()).toEqual([7, 5]);
    expect(where(condition, zeros([2]), ones([2])).tolist()).toEqual([0, 1]);
  });

  it('draws', () => {
    seed(1);
    const normal = randn([10_000]);
    expect(Math.abs(normal.mean().item())).toBeLessThan(0.03);
    expect(normal.std().item()).toBeCloseTo(1, 1);
    const drawn = randint(2, 5, [1000]).numbers();
    expect(new Set(drawn)).toEqual(new Set([2, 3, 4]));
  });
});

describe('reading', () => {
  it('item wants one number', () => {
    expect(tensor([[4]]).item()).toBe(4);
    expect(tensor(true).item()).toBe(1);
    expect(() => tensor([1, 2]).item()).toThrow(/item\(\) wants one element; this is float32\[2\]/);
    expect(() => zeros([0]).item()).toThrow(/one element/);
    expect(() => aten('complex', tensor(1), tensor(2)).item()).toThrow(/complex64/);
    expect(() => zeros([], { device: 'meta' }).item()).toThrow(TensorError);
  });

  it('lazy conjugates, negatives, zeros and sparse tensors are what they stand for', () => {
    const z = aten('complex', tensor([1, 2]), tensor([3, 4]));
    const conjugate = aten('conj', z);
    expect(conjugate.tolist()).toEqual([
      { re: 1, im: -3 },
      { re: 2, im: -4 },
    ]);
    expect(aten('imag', conjugate).tolist()).toEqual([-3, -4]);
    const zerotensor = invoke(internalOperator('_efficientzerotensor') as Operator, [[2]]) as Tensor;
    expect(zerotensor.tolist()).toEqual([0, 0]);
    expect(
      aten(
        'to_sparse',
        tensor([
          [0, 5],
          [0, 0],
        ]),
      ).tolist(),
    ).toEqual([
      [0, 5],
      [0, 0],
    ]);
  });

  it('meta tensors have a shape and no data', () => {
    const meta = zeros([2, 3], { device: 'meta' });
    expect(meta.shape).toEqual([2, 3]);
    expect(() => meta.data()).toThrow(TensorError);
  });

  it('an empty tensor of absurd size still has a shape and no elements', () => {
    const absurd = aten('empty.memory_format', [0, 2n ** 60n]);
    expect([absurd.numel, absurd.shape[1]]).toEqual([0, 2 ** 60]);
  });

  it('shapes are frozen', () => {
    expect(() => (ones([2]).shape as number[]).push(1)).toThrow(TypeError);
    expect(() => ones([2]).size(1)).toThrow(/no dimension 1 in float32\[2\]/);
    expect(ones([2, 3]).size(-1)).toBe(3);
  });
});

describe('mapped files', () => {
  it('share the bytes of the file, and never change it', () => {
    const path = join(folder, 'mapped');
    writeFileSync(path, Float32Array.of(1, 2, 3, 4));
    const { id, bytes } = native.mapFile(path);
    expect(bytes).toBe(16);
    const whole = new Tensor(native.mapTensor(id, 0, 'float32', [4]));
    const tail = new Tensor(native.mapTensor(id, 8, 'float32', [2]));
    whole.add_(10);
    expect(tail.tolist()).toEqual([13, 14]); // the same memory
    native.unmapFile(id);
    expect(whole.tolist()).toEqual([11, 12, 13, 14]); // the tensors keep the mapping alive
    expect(readFileSync(path).readFloatLE(0)).toBe(1);
    expect(() => native.mapTensor(id, 0, 'float32', [4])).toThrow(/closed/);
  });

  it('copies where the file is not aligned, and stays inside it', () => {
    const path = join(folder, 'unaligned');
    const bytes = new Uint8Array(9);
    bytes.set(new Uint8Array(Float32Array.of(5, 6).buffer), 1);
    writeFileSync(path, bytes);
    const { id } = native.mapFile(path);
    expect(new Tensor(native.mapTensor(id, 1, 'float32', [2])).tolist()).toEqual([5, 6]);
    expect(() => native.mapTensor(id, 2, 'float32', [2])).toThrow(/outside the file/);
    expect(() => native.mapTensor(id, -1, 'uint8', [1])).toThrow(/outside the file/);
    expect(() => native.mapTensor(id, 0, 'float32', [2 ** 31, 2 ** 31, 2])).toThrow(/too large/);
    expect(new Tensor(native.mapTensor(id, 9, 'float32', [0])).shape).toEqual([0]);
    native.unmapFile(id);
    native.unmapFile(id);
  });

  it('holds only 0 and 1 in a bool tensor, whatever the file holds', () => {
    const path = join(folder, 'bool');
    writeFileSync(path, Uint8Array.of(0, 2, 255));
    const { id } = native.mapFile(path);
    expect(new Tensor(native.mapTensor(id, 0, 'bool', [3])).data()).toEqual(Uint8Array.of(0, 1, 1));
  });

  it('a folder or a missing file is an error', () => {
    expect(() => native.mapFile(folder)).toThrow(/not a regular file/);
    expect(() => native.mapFile(join(folder, 'none'))).toThrow(/No such file/);
    writeFileSync(join(folder, 'empty'), '');
    expect(native.mapFile(join(folder, 'empty')).bytes).toBe(0);
  });
});

describe('indexing', () => {
  const x = arange(0, 24).reshape(2, 3, 4);

  it('picks, slices, keeps and adds dimensions', () => {
    expect(x.at(1, 2, 3).item()).toBe(23);
    expect(x.at(-1).shape).toEqual([3, 4]);
    expect(x.at('...', 0).tolist()).toEqual([
      [0, 4, 8],
      [12, 16, 20],
    ]);
    expect(x.at(0, ':', [1, 3]).tolist()).toEqual([
      [1, 2],
      [5, 6],
      [9, 10],
    ]);
    expect(x.at(0, 0, [0, 4, 2]).tolist()).toEqual([0, 2]);
    expect(x.at([1]).shape).toEqual([1, 3, 4]);
    expect(x.at(null, 0, null).shape).toEqual([1, 1, 3, 4]);
    expect(x.at().shape).toEqual([2, 3, 4]);
    expect(x.at(0).at(0, [-2]).tolist()).toEqual([2, 3]);
  });

  it('gathers with tensors', () => {
    expect(x.at(0, tensor([2n, 0n])).tolist()).toEqual([
      [8, 9, 10, 11],
      [0, 1, 2, 3],
    ]);
    expect(x.at(0, tensor([2n, 0n]), tensor([1n, 1n])).tolist()).toEqual([9, 1]);
    expect(x.at(x.gt(21)).tolist()).toEqual([22, 23]);
  });

  it('is a view', () => {
    const y = zeros([2, 2]);
    y.at(0).fill_(5);
    expect(y.tolist()).toEqual([
      [5, 5],
      [0, 0],
    ]);
  });

  it('refuses what is not there', () => {
    expect(() => x.at(0, 0, 0, 0)).toThrow(/4 indices for int64\[2, 3, 4\]/);
    expect(() => x.at(2)).toThrow(/index 2 out of range|out of bounds/i);
    expect(() => x.at('...', '...')).toThrow(/only once/);
  });
});

describe('shapes', () => {
  it('reshapes, permutes, splits', () => {
    const x = arange(0, 6).view(2, 3);
    expect(x.permute(1, 0).tolist()).toEqual([
      [0, 3],
      [1, 4],
      [2, 5],
    ]);
    expect(x.unflatten(1, [3, 1]).shape).toEqual([2, 3, 1]);
    expect(x.unflatten(-1, [1, 3]).shape).toEqual([2, 1, 3]);
    expect(x.split(2, 1).map((part) => part.shape)).toEqual([
      [2, 2],
      [2, 1],
    ]);
    expect(x.split([1, 2], 1).map((part) => part.shape)).toEqual([
      [2, 1],
      [2, 2],
    ]);
    expect(x.at(0).expand(2, 3).tolist()).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ]);
    expect(x.sum([0, 1]).item()).toBe(15);
    expect(x.to('float32').mean(1).tolist()).toEqual([1, 4]);
    expect(x.to({ dtype: 'float64', copy: true }).dtype).toBe('float64');
    expect(x.chunk(2, 1).map((part) => part.shape)).toEqual([
      [2, 2],
      [2, 1],
    ]);
  });
});

describe('printing', () => {
  it('shows dtype, shape and values', () => {
    expect(
      inspect(
        tensor([
          [1, 2.5],
          [3, 4],
        ]),
      ),
    ).toBe('Tensor float32[2, 2]\n[[1.0000, 2.5000],\n [3.0000, 4.0000]]');
    expect(inspect(tensor([1n, -20n]))).toBe('Tensor int64[2]\n[  1, -20]');
    expect(inspect(tensor([true, false]))).toContain('[ true, false]');
    expect(inspect(tensor(2).requiresGrad_())).toBe('Tensor float32[], requires grad\n2.0000');
    expect(String(ones([2, 3], { dtype: 'bfloat16' }))).toBe('bfloat16[2, 3]');
  });

  it('leaves the middle of long ones out, and reads no more than it shows', () => {
    const text = inspect(arange(0, 10_000).reshape(100, 100));
    expect(text.split('\n')).toHaveLength(8);
    expect(text).toContain('…');
    expect(text).toContain('9999');
  });

  it.each([
    [
      'freed',
      () => {
        const t = ones([1]);
        t.dispose();
        return t;
      },
      'freed',
    ],
    ['meta', () => zeros([2], { device: 'meta' }), 'float32[2] on meta'],
    ['empty', () => zeros([0, 2]), 'float32[0, 2]'],
    ['complex', () => aten('complex', tensor([1]), tensor([-2])), '1.0000-2.0000i'],
    ['bfloat16', () => tensor([1], { dtype: 'bfloat16' }), '1.0000'],
    ['not finite', () => tensor([Number.NaN, Number.NEGATIVE_INFINITY]), '-Infinity'],
    ['sparse', () => aten('to_sparse', tensor([[0, 5]])), '5.0000'],
    ['large and small', () => tensor([1e-9, 1e9]), '1.000e-9'],
  ])('shows a %s tensor', (_, make, part) => {
    expect(inspect(make())).toContain(part);
  });
});

it.each([
  ['uint8', 300],
  ['uint8', -1],
  ['int8', 128],
  ['int16', -32_769],
  ['int32', 2 ** 31],
  ['int64', 2 ** 63],
  ['int64', -(2n ** 63n) - 1n],
] as const)('refuses a number that %s does not hold: %s', (dtype, value) => {
  expect(() => tensor([1, value], { dtype })).toThrow(`${value} is outside of what ${dtype} holds`);
});

it('takes the ends of each integer type, and no fractions', () => {
  expect(tensor([0, 255], { dtype: 'uint8' }).tolist()).toEqual([0, 255]);
  expect(tensor([-128, 127], { dtype: 'int8' }).tolist()).toEqual([-128, 127]);
  expect(tensor([-(2 ** 31), 2 ** 31 - 1], { dtype: 'int32' }).tolist()).toEqual([-(2 ** 31), 2 ** 31 - 1]);
  expect(() => tensor([1.5], { dtype: 'int32' })).toThrow('1.5 is not an integer');
  expect(() => tensor([null as never])).toThrow('null is not a number');
});
