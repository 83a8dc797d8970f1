/** Names, state, modes and moves of modules; the layers against PyTorch 2.13. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { arange, keep, liveTensors, ones, scope, seed, Tensor, tensor, zeros } from '../tensor/index.ts';
import { Embedding, LayerNorm, Linear, RMSNorm } from './layers.ts';
import { Module, parameter } from './module.ts';

class Block extends Module {
  up = new Linear(2, 3);
  down = new Linear(3, 2, { bias: false });
  positions: Tensor;
  constructor() {
    super();
    this.positions = this.buffer('positions', arange(0, 4));
  }
}

class Net extends Module {
  embed = new Embedding(5, 2);
  layers = [new Block(), new Block()];
  scale = parameter(ones([1]));
  note = 'not a tensor';
}

const sines = (i: number, shape: number[]) =>
  tensor(
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => Math.sin(i * 10 + j)),
    { shape },
  );

const parts = ['up.weight', 'up.bias', 'down.weight'];

describe('names', () => {
  it('follow the fields in their order, as Hugging Face names weights', () => {
    const net = new Net();
    const names = Array.from(net.namedParameters(), ([name]) => name);
    expect(names).toEqual([
      'embed.weight',
      ...parts.map((part) => `layers.0.${part}`),
      ...parts.map((part) => `layers.1.${part}`),
      'scale',
    ]);
    expect(Array.from(net.namedBuffers(), ([name]) => name)).toEqual(['layers.0.positions', 'layers.1.positions']);
    expect([...net.state().keys()]).toEqual([...names, 'layers.0.positions', 'layers.1.positions']);
    expect(Array.from(net.namedModules(), ([name]) => name)).toEqual([
      '',
      'embed',
      'layers.0',
      'layers.0.up',
      'layers.0.down',
      'layers.1',
      'layers.1.up',
      'layers.1.down',
    ]);
    expect(Array.from(net.namedParameters('model'), ([name]) => name)[0]).toBe('model.embed.weight');
  });

  it('tied weights have the first name only, and one gradient', () => {
    class Tied extends Module {
      embed = new Embedding(4, 2);
      head = new Linear(2, 4, { bias: false });
      constructor() {
        super();
        this.head.weight = this.embed.weight;
      }
    }
    const net = new Tied();
    expect(Array.from(net.namedParameters(), ([name]) => name)).toEqual(['embed.weight']);
    net.to({ dtype: 'bfloat16' });
    expect(net.head.weight).toBe(net.embed.weight);
    expect(net.head.weight.dtype).toBe('bfloat16');
  });
});

describe('state', () => {
  it('goes from one module into another', () => {
    seed(1);
    const [a, b] = [new Net(), new Net()];
    expect(b.embed.weight.numbers()).not.toEqual(a.embed.weight.numbers());
    b.loadState(a.state());
    for (const [name, value] of a.state()) expect(b.state().get(name)?.numbers()).toEqual(value.numbers());
    expect(b.embed.weight).not.toBe(a.embed.weight);
  });

  it('names every fault at once and changes nothing', () => {
    const net = new Net();
    const state = new Map(net.state());
    state.delete('scale');
    state.set('embed.weight', zeros([5, 3]));
    state.set('extra', zeros([1]));
    const before = net.embed.weight.numbers();
    expect(() => net.loadState(state)).toThrow(
      /"embed.weight" is \[5,3\], expected \[5,2\]; "scale" is missing; "extra" is not a part of this module/,
    );
    expect(() => net.loadState(state)).toThrow(UserError);
    expect(net.embed.weight.numbers()).toEqual(before);
  });
});

describe('modes and moves', () => {
  it('train and eval reach every module', () => {
    const net = new Net();
    net.eval();
    expect(Array.from(net.namedModules(), ([, module]) => module.training)).not.toContain(true);
    net.train();
    expect(Array.from(net.namedModules(), ([, module]) => module.training)).not.toContain(false);
  });

  it('requiresGrad_ and zeroGrad reach every parameter', () => {
    const net = new Net();
    expect(net.parameters().every((item) => item.requiresGrad)).toBe(true);
    expect(
      net
        .requiresGrad_(false)
        .parameters()
        .some((item) => item.requiresGrad),
    ).toBe(false);
    net.requiresGrad_();
    net.scale.grad = ones([1]);
    net.zeroGrad();
    expect(net.scale.grad).toBeNull();
  });

  it('to converts floats, keeps integers, grads and the count of tensors', () => {
    const net = new Net();
    net.layers[1]?.requiresGrad_(false);
    const before = liveTensors();
    net.to({ dtype: 'bfloat16' });
    expect(liveTensors()).toBe(before);
    expect(net.parameters().every((item) => item.dtype === 'bfloat16')).toBe(true);
    expect(net.layers[0]?.positions.dtype).toBe('int64');
    expect(net.layers[0]?.up.weight.requiresGrad).toBe(true);
    expect(net.layers[1]?.up.weight.requiresGrad).toBe(false);
    net.to({ device: 'meta' });
    expect(net.layers[0]?.positions.device).toBe('meta');
    expect([...net.namedBuffers()][0]?.[1]).toBe(net.layers[0]?.positions);
  });

  it('outlives the scope it was made in, until it is disposed of', () => {
    const before = liveTensors();
    const net = scope(() => ({ made: new Net(), loose: zeros([1]) })).made;
    expect(net.scale.item()).toBe(1);
    net.dispose();
    expect(() => net.scale.item()).toThrow(/already freed/);
    expect(liveTensors()).toBeLessThanOrEqual(before + 1);
  });
});

describe('layers', () => {
  const close = (actual: Tensor, expected: number[]) => {
    for (const [i, value] of actual.numbers().entries()) expect(value).toBeCloseTo(expected[i] as number, 5);
  };

  it('LayerNorm and RMSNorm', () => {
    const x = sines(3, [2, 4]);
    const norm = new LayerNorm(4);
    norm.loadState(
      new Map([
        ['weight', sines(4, [4])],
        ['bias', sines(5, [4])],
      ]),
    );
    close(
      norm.forward(x),
      [-1.2435569, 0.76042873, 0.38589758, -0.62717426, 0.94335723, 0.68276626, 1.9749023, 0.77925742],
    );
    const rms = new RMSNorm(4, { eps: 1e-6 });
    rms.loadState(new Map([['weight', sines(4, [4])]]));
    close(
      rms.forward(x),
      [-0.94195479, 0.082001925, -0.64664727, -1.0641539, 0.57796025, 0.099574126, 1.3326304, 0.78475159],
    );
    expect(new LayerNorm(4, { bias: false }).bias).toBeNull();
  });

  it('Linear and Embedding', () => {
    const layer = new Linear(2, 3);
    layer.loadState(
      new Map([
        [
          'weight',
          tensor([
            [1, 2],
            [3, 4],
            [5, 6],
          ]),
        ],
        ['bias', tensor([10, 20, 30])],
      ]),
    );
    expect(layer.forward(tensor([[1, -1]])).tolist()).toEqual([[9, 19, 29]]);
    const table = new Embedding(3, 2, { dtype: 'float64' });
    expect(table.forward(tensor([[2n, 0n]])).shape).toEqual([1, 2, 2]);
    expect(() => table.forward(tensor([3n]))).toThrow(/out of range/);
  });

  it('starts as PyTorch does: uniform within 1/√fan-in, normal(0, 1)', () => {
    seed(2);
    const weights = new Linear(64, 400).weight;
    expect(weights.abs().max().item()).toBeLessThanOrEqual(1 / 8);
    expect(weights.std().item()).toBeCloseTo(1 / 8 / Math.sqrt(3), 3);
    const table = new Embedding(400, 64).weight;
    expect(table.std().item()).toBeCloseTo(1, 1);
    seed(2);
    expect(new Linear(64, 400).weight.data()).toEqual(weights.data());
    expect(keep(weights)).toBeInstanceOf(Tensor);
  });
});
