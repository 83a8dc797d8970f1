/** Decode plans of random weights, by the names that native/ops/decode/plan.cc expects, for tests. */
import { expect } from 'vitest';
import { aten, cat, type DType, integers, ones, randn, type Tensor, zeros } from '../../src/tensor/index.ts';
import { scatteredTables } from './blocks.ts';

export interface PlanShape {
  rows: number;
  heads: number;
  groups: number;
  /** Of a head, and how many pairs of its numbers are turned. */
  size: number;
  half: number;
  /** Of the MLP; a list has those of the layers. */
  inner: number | readonly number[];
  width: number;
  window: number;
  /** Whether queries and keys are normed. */
  norm: boolean;
  /** Without biases of qkv, of out and of gates and up. */
  plain?: boolean;
  /** The layers whose output projection has a bias; without it all, where there are a multiple of eight rows. */
  outBias?: readonly number[];
  /** The rows' positions, else some in no order. */
  positions?: readonly number[];
}

/**
 * A plan with random weights and a cache of so many blocks a row: what a step of its first rows gives, and where each row's keys and
 * values lie in the cache.
 */
export function randomPlan(shape: PlanShape, layers: number, blocksOfRow = 5) {
  const { rows, heads, groups, size, width, half, window, norm } = shape;
  const length = blocksOfRow * 64 - 20;
  const indices = Array.from({ length: rows }, (_, i) => i);
  const positions = shape.positions ?? indices.map((i) => (i * 67 + 41) % length);
  const slots = indices.map((i) => rows - 1 - i);
  // A plan needs no more different numbers: those of large tensors recur, each tensor from another one on.
  const drawn = randn([1_000_003]);
  let first = 0;
  const random = (shape: number[]) => {
    const count = shape.reduce((product, size) => product * size, 1);
    first = (first + 104_729) % drawn.numel;
    const times = Math.ceil((first + count) / drawn.numel);
    const numbers = times === 1 ? drawn : cat(Array.from({ length: times }, () => drawn));
    return numbers.narrow(0, first, count).view(...shape);
  };
  const matrix = (outputs: number, inputs: number) => random([outputs, inputs]).mul(1 / Math.sqrt(inputs));
  const vector = (count: number) => randn([count]).mul(0.1);
  const angles = randn([blocksOfRow * 64, half]);
  const tables = scatteredTables(rows, blocksOfRow); // of blocks of 64
  const weights: Record<string, Tensor> = {
    embedding: randn([rows, width]),
    finalNorm: ones([width]),
    'head.weight': matrix(96, width),
  };
  const settings: Record<string, number> = {
    ...{ layers, heads, eps: 1e-6, headEps: 1e-6, finalEps: 1e-6, interleaved: 0, fast: 0, spareSlot: -1 },
  };
  for (let i = 0; i < layers; i++) {
    const inner = typeof shape.inner === 'number' ? shape.inner : (shape.inner[i] as number);
    const layer: Record<string, Tensor> = {
      attentionNorm: vector(width).add(1),
      mlpNorm: vector(width).add(1),
      'qkv.weight': matrix((heads + 2 * groups) * size, width),
      'qkv.bias': vector((heads + 2 * groups) * size),
      'out.weight': matrix(width, heads * size),
      'up.weight': matrix(2 * inner, width),
      'up.bias': vector(2 * inner),
      'down.weight': matrix(width, inner),
      keys: random([rows * blocksOfRow, 64, groups, size]),
      values: random([rows * blocksOfRow, 64, groups, size]),
    };
    if (shape.outBias?.includes(i) ?? rows % 8 === 0) layer['out.bias'] = vector(width);
    if (shape.plain === true) for (const name of ['qkv', 'out', 'up']) delete layer[`${name}.bias`];
    if (norm) {
      layer.qNorm = vector(size).add(1);
      layer.kNorm = vector(size).add(1);
    }
    for (const [name, value] of Object.entries(layer)) weights[`layers.${i}.${name}`] = value;
    settings[`layers.${i}.scale`] = 1 / Math.sqrt(size);
    settings[`layers.${i}.window`] = window;
  }
  const kept = new Map<string, Tensor>();
  // `room`: the blocks that a slot may have
  const made = (place: string, type: DType, room: number) => {
    const longer = (table: Tensor, dim: number, length: number) => {
      const shape = table.shape.map((size, i) => (i === dim ? length - size : size));
      return cat([table, zeros(shape, { dtype: table.dtype })], dim).to(place);
    };
    // the same numbers on both sides: those that bf16 holds
    const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
    const tensors: Record<string, Tensor> = {
      cos: longer(angles.cos(), 0, room * 64),
      sin: longer(angles.sin(), 0, room * 64),
      tables: longer(tables, 1, room),
    };
    for (const [name, value] of Object.entries(weights)) {
      // Plans share what a step only reads.
      const key = /(keys|values)$/.test(name) ? '' : `${name} in ${type} on ${place}`;
      const given = kept.get(key) ?? put(value);
      if (key !== '') kept.set(key, given);
      tensors[name] = given;
    }
    const parts = [Object.keys(tensors), Object.values(tensors), Object.keys(settings), Object.values(settings)];
    const plan = aten<number>('attune::decode_plan', ...parts);
    const logits = (from: number, count: number): Tensor => {
      expect(plan >= 0 && aten<boolean>('attune::decode_plan_takes', plan, count)).toBe(true);
      const given = [indices, positions, slots].map((values) =>
        integers(values.slice(from, from + count), { device: place }),
      );
      return aten('attune::decode_logits', plan, ...given);
    };
    const last = `layers.${layers - 1}`;
    const [keys, values] = [tensors[`${last}.keys`] as Tensor, tensors[`${last}.values`] as Tensor];
    return { logits, keys, values, free: () => aten('attune::decode_plan_free', plan) };
  };
  const step = (place: string, type: DType, count = rows, room = blocksOfRow) => {
    const { logits, keys, values, free } = made(place, type, room);
    const found = logits(0, count);
    free();
    return { logits: found, keys, values };
  };
  const blocks = tables.data() as Int32Array;
  const places = positions.map(
    (at, i) => (blocks[(slots[i] as number) * blocksOfRow + Math.floor(at / 64)] as number) * 64 + (at % 64),
  );
  return { step, made, places };
}
