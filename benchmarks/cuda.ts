/**
 * Is CUDA right? `npm run bench -- cuda` runs every operator of ours, every fixture of tests/models and the sampler on the
 * GPU beside the CPU and prints the largest difference and the bound it is held to. Exit code 1 where one is exceeded.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Generation,
  loadModel,
  packSequences,
  type QuantType,
  quantTypes,
  Sampler,
  scoredTokens,
  tokenLogprobs,
} from '../src/models/index.ts';
import { QuantisedMatrix } from '../src/nn/index.ts';
import {
  aten,
  cudaCount,
  type DType,
  Graph,
  keep,
  linearLogprob,
  noGrad,
  openSafetensors,
  randint,
  randn,
  rmsNorm,
  scope,
  seed,
  synchronize,
  type Tensor,
  tensor,
} from '../src/tensor/index.ts';
import type { Reading } from './run.ts';

const GPU = 'cuda:0';

/** The largest |a − b| relative to the largest |b|, both read back in f32. */
function gap(a: Tensor, b: Tensor): number {
  const [x, y] = [a, b].map((value) => value.detach().to({ dtype: 'float32', device: 'cpu' })) as [Tensor, Tensor];
  return x.sub(y).abs().max().item() / Math.max(1e-30, y.abs().max().item());
}

function check(name: string, worst: number, bound: number): Reading {
  const fits = worst <= bound;
  if (!fits) process.exitCode = 1;
  return { name, worst: worst.toExponential(2), bound, result: fits ? 'ok' : 'WRONG' };
}

/** One differentiable function on both devices: the gap of its value and of its gradients. */
function* both(
  name: string,
  inputs: Tensor[],
  fn: (...inputs: Tensor[]) => Tensor,
  dtype: DType,
  bound: number,
): Generator<Reading> {
  const at = (device: string, type: DType) => {
    const leaves = inputs.map((input) => input.to({ device, dtype: type, copy: true }).requiresGrad_());
    const out = fn(...leaves);
    const weights = tensor(
      Float32Array.from({ length: out.numel }, (_, i) => Math.cos(i)),
      { shape: [...out.shape] },
    );
    out
      .mul(weights.to({ device, dtype: out.dtype }))
      .sum()
      .backward();
    return [out, ...leaves.map((leaf) => leaf.grad as Tensor)];
  };
  const here = at('cpu', 'float32');
  const there = at(GPU, dtype);
  yield check(`${name} ${dtype}`, Math.max(...there.map((value, i) => gap(value, here[i] as Tensor))), bound);
}

function* operators(): Generator<Reading> {
  seed(1);
  const move = (value: Tensor, like: Tensor, dtype?: DType) =>
    value.to({ device: like.device, ...(dtype ? { dtype } : {}) });
  for (const [dtype, bound] of [
    ['float32', 1e-4],
    ['bfloat16', 4e-2],
  ] as const) {
    const angles = randn([40, 16]);
    for (const interleaved of [false, true]) {
      const rope = (x: Tensor) => aten('attune::rope', x, move(angles.cos(), x), move(angles.sin(), x), interleaved);
      yield* both(`rope${interleaved ? ' interleaved' : ''}`, [randn([40, 6, 48])], rope, dtype, bound);
    }
    yield* both('swiglu', [randn([64, 256])], (x) => aten('attune::swiglu', x), dtype, bound);
    yield* both('rms_norm', [randn([64, 128]), randn([128])], (x, w) => rmsNorm(x, w, 1e-6), dtype, bound);
    const starts = [0, 37, 38, 300];
    const attention = (q: Tensor, k: Tensor, v: Tensor) => aten('attune::packed_attention', q, k, v, starts, 0.125, 50);
    yield* both(
      'packed_attention',
      [randn([300, 4, 64]), randn([300, 2, 64]), randn([300, 2, 64])],
      attention,
      dtype,
      bound,
    );
    const targets = randint(0, 500, [33]);
    const logprob = (h: Tensor, w: Tensor) => {
      const { logp, entropy } = linearLogprob(h, w, move(targets, h), { temperature: 0.7, chunk: 8 });
      return logp.add(entropy);
    };
    yield* both('linear_logprob', [randn([33, 64]).mul(0.3), randn([500, 64])], logprob, dtype, bound);
  }
}

/** Codes come from the CPU: both devices hold the same, so that even 4 bits must agree to rounding. */
function* quantised(): Generator<Reading> {
  seed(2);
  for (const type of quantTypes) {
    for (const inputs of [256, 77]) {
      const weight = randn([300, inputs]).mul(0.1);
      const here = QuantisedMatrix.of(weight, type);
      const there = QuantisedMatrix.of(weight, type, GPU);
      const name = `quantised ${type}, ${inputs} inputs`;
      yield check(`${name}: weights`, gap(there.dequantise(), here.dequantise()), 1e-6);
      const composed = aten('attune::dequantise_composed', ...there.arguments(), 'float32');
      yield check(`${name}: without a kernel`, gap(composed, here.dequantise()), 1e-6);
      const multiply = (x: Tensor) => (x.device === 'cpu' ? here : there).multiply(x);
      for (const [dtype, bound] of [
        ['float32', 1e-4],
        ['bfloat16', 4e-2],
      ] as const)
        yield* both(name, [randn([40, inputs])], multiply, dtype, bound);
      here.dispose();
      there.dispose();
    }
  }
}

/** Both kernels: the one for small vocabularies, and the one that shares a row among blocks. */
function* sampling(rows: number, words: number): Generator<Reading> {
  const logits = randn([rows, words]).mul(3);
  const rule = (device: string) => {
    const floats = (pick: (i: number) => number) =>
      tensor(
        Float32Array.from({ length: rows }, (_, i) => pick(i)),
        { device },
      );
    const whole = (pick: (i: number) => number) =>
      tensor(
        BigInt64Array.from({ length: rows }, (_, i) => BigInt(pick(i))),
        { device },
      );
    const [ids, logp] = aten<[Tensor, Tensor]>(
      'attune::sample',
      logits.to(device),
      floats((i) => [0, 0.7, 1, 1.3][i % 4] as number),
      whole((i) => (i % 3 === 0 ? 50 : 0)),
      floats((i) => (i % 2 === 0 ? 0.9 : 1)),
      floats((i) => (i % 5 === 0 ? 0.05 : 0)),
      whole((i) => i),
      whole((i) => i * 7),
    );
    return { ids: ids.numbers(), logp };
  };
  const here = rule('cpu');
  const there = rule(GPU);
  const different = here.ids.filter((id, i) => id !== there.ids[i]).length;
  yield check(`sample: tokens that differ, ${rows} of ${words}`, different, 2);
  if (different === 0) yield check(`sample: log-probs of ${words}`, gap(there.logp, here.logp), 1e-4);
}

/** One new token per row: attention by its own kernel, and whole blocks, both against the CPU's in f32 on the same numbers. */
function* decoding(): Generator<Reading> {
  seed(3);
  const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
  const shapes = [
    { rows: 16, heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true },
    { rows: 1, heads: 14, groups: 2, size: 64, inner: 4864, width: 896, half: 32, window: 0, norm: false },
    { rows: 17, heads: 4, groups: 1, size: 96, inner: 800, width: 288, half: 24, window: 40, norm: true },
    { rows: 32, heads: 8, groups: 8, size: 32, inner: 11008, width: 4096, half: 16, window: 0, norm: false },
    { rows: 5, heads: 2, groups: 2, size: 256, inner: 96, width: 32, half: 128, window: 7, norm: true },
  ];
  for (const { rows, heads, groups, size, inner, width, half, window, norm } of shapes) {
    const length = 300;
    const slots = whole(Array.from({ length: rows }, (_, i) => rows - 1 - i));
    const positions = whole(Array.from({ length: rows }, (_, i) => (i * 67 + 41) % length));
    const table = randn([length, half]);
    const angles = table.indexSelect(0, positions);
    const matrix = (outputs: number, inputs: number) => randn([outputs, inputs]).mul(1 / Math.sqrt(inputs));
    const total = (heads + 2 * groups) * size;
    const numbers = {
      x: randn([rows, width]),
      norms: [width, width, size, size].map((length) => randn([length]).mul(0.1).add(1)),
      weights: [matrix(total, width), matrix(width, heads * size), matrix(2 * inner, width), matrix(width, inner)],
      biases: [total, width, 2 * inner, width].map((length) => randn([length]).mul(0.1)),
      caches: [randn([rows, length, groups, size]), randn([rows, length, groups, size])],
    };
    const on = (device: string, dtype: DType) => {
      const put = (value: Tensor) => value.to('bfloat16').to({ device, dtype, copy: true });
      const x = put(numbers.x);
      const [first, second, ofQ, ofK] = numbers.norms.map(put) as [Tensor, Tensor, Tensor, Tensor];
      const [qkv, out, up, down] = numbers.weights.map(put) as [Tensor, Tensor, Tensor, Tensor];
      const [qkvBias, outBias, upBias, downBias] = numbers.biases.map(put) as [Tensor, Tensor, Tensor, Tensor];
      const [keys, values] = numbers.caches.map(put) as [Tensor, Tensor];
      const scale = 1 / Math.sqrt(size);
      const places = [slots.to(device), positions.to(device), heads];
      const turn = (of: Tensor) => [of.cos().to(device), of.sin().to(device), false];
      const normQ = norm ? ofQ : null;
      const normK = norm ? ofK : null;
      const projected = put(numbers.x.matmul(numbers.weights[0]?.t() as Tensor));
      const attention = [normQ, normK, 1e-6, ...turn(angles), keys, values, ...places, scale, window];
      const attended = aten<Tensor>('attune::decode_fused', projected, ...attention);
      const fits = aten<boolean>('attune::decode_layers_fit', x, [width, inner, heads * size, groups * size]);
      const before = [1e-6, [first], [qkv], [qkvBias], [normQ], [normK], 1e-6, ...turn(table), [keys], [values]];
      const after = [[scale], [window], [out], [outBias], [second], [up], [upBias], [down], [downBias]];
      if (fits) aten('attune::decode_layers', x, ...before, ...places, ...after);
      return { fits, x, attended, keys, values };
    };
    const here = on('cpu', 'float32');
    const name = `${rows} rows, ${heads}/${groups} heads of ${size}, ${width} wide`;
    for (const dtype of ['float32', 'bfloat16', 'float16'] as const) {
      const there = on(GPU, dtype);
      const bound = dtype === 'float32' ? 1e-4 : 2e-2;
      yield check(`decode_fused ${dtype}: ${name}`, gap(there.attended, here.attended), bound);
      if (there.fits && here.fits) {
        yield check(`decode_layers ${dtype}: ${name}`, gap(there.x, here.x), bound);
        yield check(
          `decode_layers ${dtype}: its keys`,
          Math.max(gap(there.keys, here.keys), gap(there.values, here.values)),
          bound,
        );
      } else if (dtype === 'bfloat16') yield check(`decode_layers ${dtype} fits: ${name}`, Number.NaN, 0);
    }
  }
}

function* graphs(): Generator<Reading> {
  const x = keep(randn([64, 64], { device: GPU }));
  const out = keep(randn([64, 64], { device: GPU }));
  const graph = Graph.capture(() => scope(() => void out.copy_(x.matmul(x).add(1))));
  x.copy_(randn([64, 64], { device: GPU }));
  graph.replay();
  synchronize();
  yield check('graph replay', gap(out, x.matmul(x).add(1)), 1e-5);
  graph.dispose();
}

async function* models(): AsyncGenerator<Reading> {
  const folder = ['tests/models/fixtures', '../tests/models/fixtures'].find((path) => existsSync(path));
  if (folder === undefined) return;
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    using reference = openSafetensors(join(path, 'reference.safetensors'));
    const ids = reference.tensor('input_ids').tolist() as number[][];
    const batch = packSequences(ids, GPU);
    const expected = reference.tensor('logits').flatten(0, 1);
    for (const [dtype, bound] of [
      ['float32', 2e-4],
      ['bfloat16', 6e-2],
    ] as const) {
      using model = await loadModel(path, { device: GPU, dtype });
      const logits = noGrad(() => model.decoder.logits(model.decoder.forward(batch)));
      yield check(`${name} ${dtype}: logits`, gap(logits, expected), bound);
    }
    for (const quantType of quantTypes) {
      const logitsOn = async (device: string) => {
        using model = await loadModel(path, { device, dtype: 'float32', quantType });
        return noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids, device))));
      };
      yield check(`${name} ${quantType}: logits`, gap(await logitsOn(GPU), await logitsOn('cpu')), 2e-4);
    }
    yield await sampler(path, name, ids[0] as number[]);
    yield await sampler(path, `${name} int4`, ids[0] as number[], 'int4');
  }
}

/** Greedy tokens on the GPU (through the captured graph) are the CPU's, and the sampler's log-probs are the trainer's. */
async function sampler(path: string, name: string, prompt: number[], quantType?: QuantType): Promise<Reading> {
  const replies: number[][] = [];
  let worst = 0;
  for (const device of ['cpu', GPU]) {
    using model = await loadModel(path, { device, dtype: 'float32', quantType });
    using engine = new Sampler(model);
    const request = { prompt: prompt.slice(0, 5), maxNewTokens: 12 };
    const [[greedy], [drawn]] = (await engine.generate([
      { ...request, temperature: 0 },
      { ...request, temperature: 0.8, seed: 3 },
    ])) as [[Generation], [Generation]];
    replies.push(greedy.ids);
    worst = Math.max(
      worst,
      scope(() =>
        noGrad(() => {
          const ids = [...request.prompt, ...drawn.ids];
          const batch = packSequences([ids], device);
          const scored = scoredTokens(
            batch.starts,
            ids.map((_, i) => (i >= request.prompt.length ? 1 : 0)),
          );
          const logp = tokenLogprobs(model.decoder, model.decoder.forward(batch), batch, scored, 0.8).logp.numbers();
          return Math.max(...logp.map((value, i) => Math.abs(value - (drawn.logprobs[i] as number))));
        }),
      ),
    );
  }
  // dynamic rope turns tokens by the length at which they were written: no forward over the whole repeats that
  if (path.endsWith('llama-dynamic')) worst = 0;
  return check(`${name}: sampler`, replies[0]?.join() === replies[1]?.join() ? worst : Number.POSITIVE_INFINITY, 1e-4);
}

export async function* run(): AsyncGenerator<Reading> {
  if (cudaCount() === 0) {
    console.error('There is no CUDA device here (attune doctor says what was found).');
    process.exitCode = 1;
    return;
  }
  yield* operators();
  yield* quantised();
  yield* sampling(512, 5000);
  yield* sampling(256, 32_003);
  yield* sampling(256, 151_936);
  yield* decoding();
  yield* graphs();
  yield* models();
}
