/**
 * `npm run bench -- dist-memory [--blocks 36] [--ranks 2] [--shard full] [--lora] [--device cuda] [--steps 2]`: training steps of
 * Qwen3-8B's shape (or of some of its blocks) with random weights, and the peak of memory that each rank takes beside what the
 * cost model of docs/distributed.md predicts. `start_gib` is the peak before the first micro-batch: a model is loaded whole before it
 * is dealt. Several ranks may share one GPU (Gloo).
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { freePort } from '../src/dist/meeting.ts';
import { rankBytes } from '../src/dist/shard/memory.ts';
import type { Shard } from '../src/dist/shard/optimizer.ts';
import { joinWorld } from '../src/dist/world.ts';
import { native } from '../src/tensor/engine/native.ts';
import { trainSft } from '../src/trainers/sft/sft.ts';
import type { Reading } from './run.ts';

const tokenizer = fileURLToPath(new URL('../models/tiny', import.meta.url));
const GiB = 2 ** 30;

const options = {
  blocks: { type: 'string', default: '36' },
  hidden: { type: 'string', default: '4096' },
  ranks: { type: 'string', default: '2' },
  shard: { type: 'string', default: 'full' },
  lora: { type: 'boolean', default: false },
  device: { type: 'string', default: 'cuda' },
  steps: { type: 'string', default: '2' },
} as const;

type Values = ReturnType<typeof parse>;
const parse = (args: string[]) => parseArgs({ args, options }).values;

const shape = ({ blocks, hidden }: Values) => ({
  model_type: 'qwen3',
  architectures: ['Qwen3ForCausalLM'],
  vocab_size: 151_936,
  hidden_size: Number(hidden),
  intermediate_size: 3 * Number(hidden),
  num_hidden_layers: Number(blocks),
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: Number(hidden) / 32,
  max_position_embeddings: 4096,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  hidden_act: 'silu',
  tie_word_embeddings: false,
  initializer_range: 0.02,
});

interface Measured {
  rank: number;
  parameters: number;
  trained: number;
  /** Elements of the largest block, of what is in none, and of the largest tensor. */
  block: number;
  rest: number;
  large: number;
  startBytes: number;
  peakBytes: number;
  losses: number[];
  secondsPerStep: number;
}

async function measure(values: Values, folder: string): Promise<void> {
  const world = await joinWorld();
  const onGpu = values.device.startsWith('cuda');
  const rows = Array.from({ length: 16 }, (_, i) => ({ text: `red blue seven answer because ${i} `.repeat(40) }));
  using run = await trainSft(
    {
      fromConfig: join(folder, 'config.json'),
      tokenizer,
      outputDir: join(folder, 'runs'),
      dataset: rows,
      dtype: 'bfloat16',
      device: values.device,
      batchSize: 1,
      gradAccum: 2,
      maxLength: 512,
      lr: 1e-5,
      epochs: 9,
      maxSteps: Number(values.steps),
      gradientCheckpointing: true,
      shard: values.shard as 'full',
      lora: values.lora,
      evalSteps: -1,
      saveSteps: -1,
      saveModel: false,
      validationSplit: 0,
      reportTo: ['none'],
    },
    { cache: false, run: { curves: false } },
  ).open();
  const { decoder } = run.model;
  const count = (tensors: Iterable<readonly [string, { numel: number }]>) =>
    [...tensors].reduce((sum, [, { numel }]) => sum + numel, 0);
  const blocks = decoder.layers.map((layer) => count(layer.parameters()));
  const sizes = {
    parameters: decoder.parameterCount(),
    trained: count(run.model.trainable()),
    block: Math.max(...blocks),
    large: Math.max(...Array.from(decoder.tensors(), ([, { numel }]) => numel)),
  };
  const rest = sizes.parameters - blocks.reduce((sum, size) => sum + size, 0);
  const peak = () => (onGpu ? native.cudaMemory(0).peak : 0);
  let startBytes = 0;
  // The peak counts from the first micro-batch on, when weights that are dealt are no longer whole.
  const backward = decoder.backward.bind(decoder);
  decoder.backward = (...args) => {
    if (startBytes === 0) {
      startBytes = peak();
      if (onGpu) native.cudaResetPeak(0);
    }
    return backward(...args);
  };
  const losses: number[] = [];
  for await (const { metrics } of run) {
    losses.push(metrics['train/loss'] as number);
    if (losses.length < Number(values.steps)) continue;
    const secondsPerStep = metrics['train/step_time'] as number;
    const bytes = { startBytes, peakBytes: peak() };
    const measured: Measured = { rank: world.rank, ...sizes, rest, ...bytes, losses, secondsPerStep };
    // Here and now: a training that goes on to its end, or is left, gathers and saves the whole model.
    writeSync(1, `${JSON.stringify(measured)}\n`);
    process.exit(0);
  }
}

/** Bytes of weights, gradients and state on each rank; activations come on top. */
function predicted({ shard, lora }: Values, ranks: number, { parameters, trained, ...sizes }: Measured): number {
  const { block, rest, large } = sizes;
  const { weights, optimizer } = rankBytes(
    {
      weights: { whole: 2 * parameters, block: 2 * block, rest: 2 * rest },
      trained,
      trainedSize: lora ? 4 : 2,
      block,
      largest: large,
      isAdapter: lora,
    },
    shard as Shard,
    ranks,
  );
  return weights + optimizer;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const values = parse(args);
  const ranks = Number(values.ranks);
  const folder = mkdtempSync(join(tmpdir(), 'attune-bench-memory-'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(shape(values)));
  const port = String(await freePort());
  const each = await Promise.all(
    Array.from({ length: ranks }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${ranks}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${ranks}` };
      const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port };
      const child = spawn(process.execPath, [import.meta.filename, 'rank', folder, ...args], {
        env: { ...process.env, ...place, ...meeting, ATTUNE_DIST_BACKEND: 'gloo' },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let said = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        said += chunk;
      });
      return new Promise<string>((resolve) => child.on('close', () => resolve(said)));
    }),
  );
  for (const text of each) {
    if (text === '') throw new Error('a rank failed: see above');
    const measured = JSON.parse(text) as Measured;
    yield {
      name: `--shard ${values.shard}${values.lora ? ' --lora' : ''}, ${(measured.parameters / 1e9).toFixed(2)}B, rank ${measured.rank} of ${ranks}`,
      start_gib: measured.startBytes / GiB,
      peak_gib: measured.peakBytes / GiB,
      predicted_gib: predicted(values, ranks, measured) / GiB,
      s_per_step: measured.secondsPerStep,
      losses: measured.losses.join(' '),
    };
  }
  rmSync(folder, { recursive: true });
}

if (process.argv[2] === 'rank') {
  await measure(parse(process.argv.slice(4)), process.argv[3] as string);
}
