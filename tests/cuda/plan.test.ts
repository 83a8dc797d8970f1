/** A decoding step by the native plan, in the dtype that has kernels on the device, against the CPU's in f32. */
import { describe, expect, it } from 'vitest';
import { aten, type DType, integers, ones, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { scatteredTables } from './blocks.ts';
import { device, gap, hasCuda } from './device.ts';

const shapes = [
  { rows: 16, heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true },
  { rows: 1, heads: 14, groups: 2, size: 64, inner: 4864, width: 896, half: 32, window: 0, norm: false },
  { rows: 17, heads: 4, groups: 1, size: 96, inner: 800, width: 288, half: 24, window: 40, norm: true },
  { rows: 5, heads: 2, groups: 2, size: 256, inner: 96, width: 32, half: 128, window: 7, norm: true },
];
const dtype: DType = hasCuda ? 'bfloat16' : 'float32';

describe(`a plan of one layer on ${device}`, () => {
  it.each(shapes)('$rows rows, $heads heads of $size, $width wide', (shape) =>
    scope(() => {
      seed(3);
      const { rows, heads, groups, size, inner, width, half, window, norm } = shape;
      const length = 300;
      const indices = Array.from({ length: rows }, (_, i) => i);
      const matrix = (outputs: number, inputs: number) => randn([outputs, inputs]).mul(1 / Math.sqrt(inputs));
      const vector = (count: number) => randn([count]).mul(0.1);
      const angles = randn([5 * 64, half]);
      const tables = scatteredTables(rows, 5); // of blocks of 64
      const weights: Record<string, Tensor> = {
        embedding: randn([rows, width]),
        finalNorm: ones([width]),
        'head.weight': matrix(96, width),
        'layers.0.attentionNorm': vector(width).add(1),
        'layers.0.mlpNorm': vector(width).add(1),
        'layers.0.qkv.weight': matrix((heads + 2 * groups) * size, width),
        'layers.0.qkv.bias': vector((heads + 2 * groups) * size),
        'layers.0.out.weight': matrix(width, heads * size),
        'layers.0.up.weight': matrix(2 * inner, width),
        'layers.0.up.bias': vector(2 * inner),
        'layers.0.down.weight': matrix(width, inner),
        'layers.0.keys': randn([rows * 5, 64, groups, size]),
        'layers.0.values': randn([rows * 5, 64, groups, size]),
      };
      if (norm) {
        weights['layers.0.qNorm'] = vector(size).add(1);
        weights['layers.0.kNorm'] = vector(size).add(1);
      }
      const settings = {
        ...{ layers: 1, heads, eps: 1e-6, headEps: 1e-6, finalEps: 1e-6, interleaved: 0 },
        ...{ 'layers.0.scale': 1 / Math.sqrt(size), 'layers.0.window': window },
      };
      const on = (place: string, type: DType) => {
        // the same numbers on both sides: those that bf16 holds
        const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
        const tensors: Record<string, Tensor> = {
          cos: angles.cos().to(place),
          sin: angles.sin().to(place),
          tables: tables.to(place),
        };
        for (const [name, value] of Object.entries(weights)) tensors[name] = put(value);
        const parts = [Object.keys(tensors), Object.values(tensors), Object.keys(settings), Object.values(settings)];
        const plan = aten<number>('attune::decode_plan', ...parts);
        expect(plan >= 0 && aten<boolean>('attune::decode_plan_takes', plan, rows)).toBe(true);
        const at = [indices, indices.map((i) => (i * 67 + 41) % length), indices.map((i) => rows - 1 - i)];
        const logits = aten('attune::decode_logits', plan, ...at.map((values) => integers(values, { device: place })));
        aten('attune::decode_plan_free', plan);
        return { logits, keys: tensors['layers.0.keys'] as Tensor, values: tensors['layers.0.values'] as Tensor };
      };
      const here = on('cpu', 'float32');
      const there = on(device, dtype);
      for (const part of ['logits', 'keys', 'values'] as const)
        expect(gap(there[part], here[part])).toBeLessThanOrEqual(2e-2);
    }),
  );
});
