/**
 * Two ranks over Gloo on one GPU, with nothing, the optimiser and the weights dealt: they must have the losses of one rank.
 *
 *     ./attune node app/tests/cuda/dist-check.js [tiny] [large] [--device cuda]
 *
 * tests/cuda/dist.test.ts holds NCCL to the same in a world of one: it takes a GPU for each rank.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { freePort } from '../../src/dist/meeting.ts';
import { type Shard, shardKinds } from '../../src/dist/shard/optimizer.ts';
import { joinWorld } from '../../src/dist/world.ts';
import { corpusRows } from '../../src/tasks/index.ts';
import { cudaCount, cudaMemory, resetPeakMemory } from '../../src/tensor/index.ts';
import { trainSft } from '../../src/trainers/sft/sft.ts';

interface Job {
  label: string;
  folder: string;
  config: object;
}

/** A training of a few steps; rank 0 prints its losses and the memory at its peak. */
async function train({ label, folder, config }: Job): Promise<void> {
  const world = await joinWorld();
  using run = await trainSft(
    {
      dataset: [...corpusRows('sft', { tasks: 'chain_sum:2', count: 64, seed: 3 })] as never,
      batchSize: 4,
      gradAccum: 4,
      evalSteps: -1,
      validationSplit: 0,
      saveSteps: -1,
      saveModel: false,
      lr: 1e-4,
      maxSteps: 3,
      reportTo: ['none'],
      outputDir: join(folder, label.replaceAll(' ', '-')),
      ...config,
    } as never,
    { cache: false, run: { curves: false } },
  ).open();
  if (cudaCount() > 0) resetPeakMemory();
  const losses: number[] = [];
  const begun = performance.now();
  for await (const { metrics } of run) losses.push(metrics['train/loss'] as number);
  const seconds = (performance.now() - begun) / 1000;
  const peaks = await world.gather(cudaCount() > 0 ? cudaMemory().peak / 2 ** 30 : 0);
  if (!world.isFirst) return;
  const told = losses.map((loss) => loss.toFixed(6)).join(' ');
  console.log(
    `${label}: losses ${told}; peak ${peaks.map((gib) => gib.toFixed(2)).join(', ')} GiB; ${seconds.toFixed(1)} s`,
  );
}

async function ranks(size: number, jobs: readonly Job[]): Promise<void> {
  const port = String(await freePort());
  await Promise.all(
    Array.from({ length: size }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${size}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${size}` };
      const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port };
      const own = { ATTUNE_DIST_BACKEND: 'gloo', ATTUNE_THREADS: '4' };
      const child = spawn(process.execPath, [import.meta.filename, JSON.stringify(jobs)], {
        env: { ...process.env, ...place, ...meeting, ...own },
        stdio: 'inherit',
      });
      return new Promise<void>((resolve, reject) =>
        child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`rank ${rank} ended with ${code}`)))),
      );
    }),
  );
}

const tokenizer = fileURLToPath(new URL('../../models/tiny', import.meta.url));
/** 1.2 billion parameters. */
const largeShape = {
  model_type: 'qwen3',
  architectures: ['Qwen3ForCausalLM'],
  hidden_size: 2048,
  intermediate_size: 6144,
  num_hidden_layers: 20,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  max_position_embeddings: 4096,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  hidden_act: 'silu',
  tie_word_embeddings: true,
  initializer_range: 0.02,
  vocab_size: 32000,
};

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { device: { type: 'string', default: 'cuda' } },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-dist-check-'));
  const fromConfig = join(folder, 'config.json');
  writeFileSync(fromConfig, JSON.stringify(largeShape));
  const models: Record<string, object> = {
    tiny: { model: tokenizer, dtype: 'float32' },
    large: { fromConfig, tokenizer, dtype: 'bfloat16', maxSteps: 2, gradientCheckpointing: true },
  };
  for (const name of positionals.length > 0 ? positionals : Object.keys(models)) {
    const job = (size: number, shard: Shard): Job => ({
      label: `${name}, ranks: ${size}, shard ${shard}`,
      folder,
      config: { ...models[name], device: values.device, shard },
    });
    await ranks(1, [job(1, 'none')]);
    await ranks(
      2,
      shardKinds.map((shard) => job(2, shard)),
    );
  }
  rmSync(folder, { recursive: true });
}

const given = process.argv[2];
if (given?.startsWith('[')) {
  for (const job of JSON.parse(given) as Job[]) await train(job);
  process.exit(0);
}
await main();
