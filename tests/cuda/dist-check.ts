/**
 * Distributed training on one GPU, as far as one can show it: NCCL in a world of one through every collective, and two ranks
 * over Gloo on the one GPU, which must have the losses of one rank.
 *
 *     ./attune node app/tests/cuda/dist-check.js
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Group } from '../../src/dist/group.ts';
import { freePort } from '../../src/dist/launch.ts';
import { SharedStore } from '../../src/dist/store.ts';
import { joinWorld } from '../../src/dist/world.ts';
import { corpusRows } from '../../src/tasks/index.ts';
import { cudaMemory, keep, synchronize, tensor, zeros } from '../../src/tensor/index.ts';
import { trainSft } from '../../src/trainers/sft/sft.ts';

const folder = process.env.CHECK_FOLDER ?? mkdtempSync(join(tmpdir(), 'attune-dist-'));
const device = 'cuda';

async function everyCollective(): Promise<void> {
  const store = await SharedStore.file(join(folder, 'store'), 1);
  const group = await Group.make({
    store: store.id,
    backend: 'nccl',
    name: 'one',
    rank: 0,
    size: 1,
    timeoutMs: 60_000,
  });
  const values = () => keep(tensor([1, 2, 3], { device }));
  const [a, b, c] = [values(), values(), keep(zeros([3], { device }))];
  await group.allReduce(a);
  await group.allReduce(a, 'max');
  await group.broadcast(a);
  await group.allGather(c, a);
  await group.reduceScatter(b, c);
  await group.allToAll(c, b);
  await group.barrier();
  const big = keep(zeros([1 << 26], { device }));
  await group.allReduce(big);
  synchronize();
  const begun = performance.now();
  await group.allReduce(big);
  synchronize();
  console.log(
    `NCCL, a world of one: every collective gives ${c.numbers().join(' ')}; 256 MiB in ${(performance.now() - begun).toFixed(1)} ms`,
  );
}

/** A training of a few steps; rank 0 prints its losses and the memory at its peak. */
async function train(label: string, config: object): Promise<void> {
  const world = await joinWorld();
  const dataset = [...corpusRows('sft', { tasks: 'chain_sum:2', count: 64, seed: 3 })] as never;
  const shared = {
    dataset,
    device,
    batchSize: 4,
    gradAccum: 4,
    evalSteps: -1,
    validationSplit: 0,
    saveSteps: -1,
    saveModel: false,
  };
  const begun = performance.now();
  using run = await trainSft(
    {
      ...shared,
      lr: 1e-4,
      maxSteps: 3,
      reportTo: ['none'],
      outputDir: join(folder, label.replaceAll(' ', '-')),
      ...config,
    } as never,
    { cache: false, run: { curves: false } },
  ).open();
  const losses: number[] = [];
  for await (const { metrics } of run) losses.push(metrics['train/loss'] as number);
  const peak = await world.gather(cudaMemory().peak / 2 ** 30);
  if (world.isFirst)
    console.log(
      `${label}: losses ${losses.map((loss) => loss.toFixed(6)).join(' ')}; peak ${peak.map((gib) => gib.toFixed(2)).join(', ')} GiB; ${((performance.now() - begun) / 1000).toFixed(1)} s`,
    );
}

async function ranks(size: number, label: string, config: object): Promise<void> {
  const port = String(await freePort());
  await Promise.all(
    Array.from({ length: size }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${size}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${size}` };
      const env = { ...process.env, ...place, MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port };
      const args = [fileURLToPath(import.meta.url), `${size} ranks, ${label}`, JSON.stringify(config)];
      const own = { ...env, ATTUNE_DIST_BACKEND: 'gloo', ATTUNE_THREADS: '4', CHECK_FOLDER: folder };
      const child = spawn(process.execPath, args, { env: own, stdio: 'inherit' });
      return new Promise((resolve) => child.on('close', resolve));
    }),
  );
}

const [label, config] = process.argv.slice(2);
if (label !== undefined) {
  await train(label, JSON.parse(config ?? '{}') as object);
  process.exit(0);
}
await everyCollective();
const tiny = fileURLToPath(new URL('../../models/tiny', import.meta.url));
for (const [size, shard] of [
  [1, 'none'],
  [2, 'none'],
  [2, 'optimizer'],
] as const)
  await ranks(size, `tiny, shard ${shard}`, { model: tiny, dtype: 'float32', shard });
// A model of 1.2 billion parameters in bf16.
const shape = join(folder, 'config.json');
writeFileSync(
  shape,
  JSON.stringify({
    ...{
      model_type: 'qwen3',
      architectures: ['Qwen3ForCausalLM'],
      hidden_size: 2048,
      intermediate_size: 6144,
      num_hidden_layers: 20,
    },
    ...{
      num_attention_heads: 16,
      num_key_value_heads: 8,
      head_dim: 128,
      max_position_embeddings: 4096,
      rms_norm_eps: 1e-6,
    },
    ...{ rope_theta: 1e6, hidden_act: 'silu', tie_word_embeddings: true, initializer_range: 0.02, vocab_size: 32000 },
  }),
);
const large = { fromConfig: shape, tokenizer: tiny, dtype: 'bfloat16', maxSteps: 2, gradientCheckpointing: true };
for (const [size, shard] of [
  [1, 'none'],
  [2, 'none'],
  [2, 'optimizer'],
] as const)
  await ranks(size, `1.2B, shard ${shard}`, { ...large, shard });
