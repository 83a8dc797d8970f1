/**
 * The engine beside Python's torch: `npm run bench -- engine [--device cuda] [--quick] [--only name]`. What an operator costs,
 * matrix products, training steps, and what linear_logprob saves. The peer is benchmarks/engine_peer.py, run by
 * $ATTUNE_PYTHON (python3) with as many threads, case by case in turn; without a torch there, the columns are left out.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { packedAttention } from '../src/models/decoder/attention.ts';
import { packedBatch } from '../src/models/decoder/batch.ts';
import { AdamW, LayerNorm, Linear, Module } from '../src/nn/index.ts';
import {
  cudaMemory,
  type DType,
  linearLogprob,
  noGrad,
  ones,
  randint,
  randn,
  resetPeakMemory,
  scope,
  seed,
  synchronize,
  type Tensor,
  threads,
} from '../src/tensor/index.ts';
import type { Reading } from './run.ts';
import { Peer } from './support/engine-peer.ts';

const VOCABULARY = 151_936; // Qwen's

interface Setting {
  device: string;
  /** How long each case is repeated per round. */
  seconds: number;
  quick: boolean;
}

interface Case {
  name: string;
  unit: 'µs' | 'ms' | 'GFLOP/s';
  floatingPointOperations?: number;
  run: (setting: Setting) => number;
}

const sizes = [1024, 2048];
const cases: Case[] = [
  { name: 'add', unit: 'µs', run: (setting) => add(setting, false) },
  { name: 'add with grad', unit: 'µs', run: (setting) => add(setting, true) },
  ...sizes.flatMap((size) =>
    (['float32', 'bfloat16'] as const).map(
      (dtype): Case => ({
        name: `${size}³ ${dtype}`,
        unit: 'GFLOP/s',
        floatingPointOperations: 2 * size ** 3,
        run: (setting) => product(setting, size, dtype),
      }),
    ),
  ),
  { name: 'mlp step', unit: 'ms', run: mlp },
  { name: 'attention step', unit: 'ms', run: attention },
];

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: { device: { type: 'string', default: 'cpu' }, quick: { type: 'boolean' }, only: { type: 'string' } },
  });
  const quick = values.quick ?? false;
  const setting: Setting = { device: values.device, seconds: quick ? 0.2 : 1, quick };
  const wanted = (name: string) => values.only === undefined || name.includes(values.only);
  const peer = await Peer.start('engine_peer.py', { ...setting, threads: threads() });
  try {
    for (const each of cases.filter((item) => wanted(item.name))) yield await compare(each, setting, peer);
  } finally {
    peer?.stop();
  }
  for (const backward of [false, true]) {
    const name = `linear_logprob ${backward ? 'forward and backward' : 'forward'}`;
    if (wanted(name)) yield { name, ...logprob(setting, backward) };
  }
}

/** Ours and the peer's in turn, several rounds, the best of each: other work on the machine hits both alike. */
async function compare(each: Case, setting: Setting, peer: Peer | undefined): Promise<Reading> {
  let [ours, theirs] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let round = 0; round < (setting.quick ? 1 : 3); round++) {
    seed(0);
    ours = Math.min(
      ours,
      scope(() => each.run(setting)),
    );
    if (peer !== undefined) theirs = Math.min(theirs, await peer.seconds(each.name));
  }
  const figure = (seconds: number) => {
    if (each.unit === 'GFLOP/s') return rounded((each.floatingPointOperations as number) / seconds / 1e9);
    return rounded(seconds * (each.unit === 'µs' ? 1e6 : 1e3));
  };
  const reading = { name: each.name, unit: each.unit, attune: figure(ours) };
  if (peer === undefined) return reading;
  return { ...reading, [`torch ${peer.version}`]: figure(theirs), 'times as fast': rounded(theirs / ours) };
}

function rounded(value: number): number {
  return Number(value.toPrecision(3));
}

/** The shortest of as many runs as fit the time, after two to warm up. */
function best({ device, seconds }: Setting, body: () => void): number {
  const wait = device.startsWith('cuda') ? () => synchronize() : () => {};
  let shortest = Number.POSITIVE_INFINITY;
  const until = performance.now() + seconds * 1000;
  for (let i = 0; i < 3 || performance.now() < until; i++) {
    wait();
    const start = performance.now();
    body();
    wait();
    if (i >= 2) shortest = Math.min(shortest, performance.now() - start);
  }
  return shortest / 1000;
}

function add(setting: Setting, grad: boolean): number {
  const x = ones([8], setting).requiresGrad_(grad);
  const y = ones([8], setting);
  const thousand = () =>
    scope(() => {
      for (let i = 0; i < 1000; i++) x.add(y);
    });
  return best(setting, () => (grad ? thousand() : noGrad(thousand))) / 1000;
}

/** Where it would take seconds (bf16 on a CPU without it), the rate of a small one. */
function product(setting: Setting, size: number, dtype: DType): number {
  const timed = (n: number) => {
    const [a, b] = [randn([n, n], setting).to(dtype), randn([n, n], setting).to(dtype)];
    return best(setting, () => noGrad(() => scope(() => void a.matmul(b))));
  };
  const small = timed(128) * (size / 128) ** 3;
  return small > 4 ? small : timed(size);
}

function trainingStep(setting: Setting, model: Module, loss: () => Tensor): number {
  const optimiser = new AdamW(model.namedParameters(), { lr: 1e-4, weightDecay: 0.01 });
  const seconds = best(setting, () =>
    scope(() => {
      loss().backward();
      optimiser.step();
      optimiser.zeroGrad();
    }),
  );
  optimiser.dispose();
  model.dispose();
  return seconds;
}

class Mlp extends Module {
  layers: Linear[];
  constructor(size: number, depth: number, device: string) {
    super();
    this.layers = Array.from({ length: depth }, () => new Linear(size, size, { device }));
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer, i) => (i === 0 ? layer.forward(h) : layer.forward(h.relu())), x);
  }
}

function mlp(setting: Setting): number {
  const model = new Mlp(512, 6, setting.device);
  const [x, y] = [randn([64, 512], setting), randn([64, 512], setting)];
  return trainingStep(setting, model, () => model.forward(x).sub(y).square().mean());
}

class Block extends Module {
  norm1: LayerNorm;
  norm2: LayerNorm;
  qkv: Linear;
  out: Linear;
  up: Linear;
  down: Linear;
  readonly #heads: number;
  constructor(dim: number, heads: number, options: { device: string; dtype: DType }) {
    super();
    this.#heads = heads;
    this.norm1 = new LayerNorm(dim, options);
    this.norm2 = new LayerNorm(dim, options);
    this.qkv = new Linear(dim, 3 * dim, options);
    this.out = new Linear(dim, dim, options);
    this.up = new Linear(dim, 4 * dim, options);
    this.down = new Linear(4 * dim, dim, options);
  }
  /** x is packed: [tokens, dim]. */
  forward(x: Tensor, batch: ReturnType<typeof packedBatch>): Tensor {
    const size = x.size(-1) / this.#heads;
    const [q, k, v] = this.qkv.forward(this.norm1.forward(x)).view(-1, 3, this.#heads, size).unbind(1) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const mixed = packedAttention({ q, k, v, batch, scale: size ** -0.5, window: null, bias: null, dropout: 0 });
    const attended = x.add(this.out.forward(mixed.reshape(-1, x.size(-1))));
    return attended.add(this.down.forward(this.up.forward(this.norm2.forward(attended)).gelu()));
  }
}

class Blocks extends Module {
  blocks: Block[];
  constructor(count: number, dim: number, heads: number, options: { device: string; dtype: DType }) {
    super();
    this.blocks = Array.from({ length: count }, () => new Block(dim, heads, options));
  }
}

function attention(setting: Setting): number {
  const [sequences, length, dim] = [8, 128, 256];
  const dtype: DType = setting.device.startsWith('cuda') ? 'bfloat16' : 'float32';
  const model = new Blocks(4, dim, 4, { device: setting.device, dtype });
  const starts = Array.from({ length: sequences + 1 }, (_, i) => i * length);
  const batch = packedBatch(new Int32Array(sequences * length), starts, setting.device);
  const x = randn([sequences * length, dim], setting).to(dtype);
  return trainingStep(setting, model, () => {
    const out = model.blocks.reduce((h, block) => block.forward(h, batch), x);
    return out.to('float32').square().mean();
  });
}

/** Time and peak memory of the chunked operator beside the same with all logits in memory. */
function logprob(setting: Setting, backward: boolean): Record<string, number | string> {
  const cuda = setting.device.startsWith('cuda');
  const [tokens, dim] = setting.quick ? [256, 64] : cuda ? [8192, 2048] : [1024, 256];
  const dtype: DType = cuda ? 'bfloat16' : 'float32';
  return scope(() => {
    seed(0);
    const hidden = randn([tokens, dim], setting).to(dtype).requiresGrad_(backward);
    const weight = randn([VOCABULARY, dim], setting).div(Math.sqrt(dim)).to(dtype).requiresGrad_(backward);
    const targets = randint(0, VOCABULARY, [tokens], { device: setting.device });
    const whole = () => hidden.matmul(weight.t()).logSoftmax(-1, 'float32').gather(1, targets.unsqueeze(1));
    const measure = (logp: () => Tensor) => {
      const body = () =>
        scope(() => {
          if (!backward) return void noGrad(logp);
          logp().sum().backward();
          hidden.grad = weight.grad = null;
        });
      return {
        mebibytes: peakBytes(setting, body) / 2 ** 20,
        seconds: best({ ...setting, seconds: setting.seconds * 3 }, body),
      };
    };
    const ours = measure(() => linearLogprob(hidden, weight, targets).logp);
    const all = measure(whole);
    return {
      tokens,
      dim,
      'attune ms': rounded(ours.seconds * 1e3),
      'whole ms': rounded(all.seconds * 1e3),
      'time ratio': rounded(ours.seconds / all.seconds),
      'attune MiB': rounded(ours.mebibytes),
      'whole MiB': rounded(all.mebibytes),
      'memory ratio': rounded(ours.mebibytes / all.mebibytes),
    };
  });
}

/** What `body` takes at its peak on top of what is there: of the device on CUDA, of the process (VmHWM) on the CPU. */
function peakBytes({ device }: Setting, body: () => void): number {
  if (device.startsWith('cuda')) {
    synchronize();
    const before = cudaMemory().allocated;
    resetPeakMemory();
    body();
    synchronize();
    return cudaMemory().peak - before;
  }
  const status = (field: string) => {
    const line = new RegExp(`^${field}:\\s*(\\d+) kB`, 'm').exec(readFileSync('/proc/self/status', 'utf8'));
    return Number(line?.[1]) * 1024;
  };
  writeFileSync('/proc/self/clear_refs', '5'); // resets VmHWM
  const before = status('VmRSS');
  body();
  return status('VmHWM') - before;
}
