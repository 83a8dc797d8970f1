/**
 * Sampling and training steps of whole models beside Hugging Face transformers: `npm run bench -- models [--device cuda]
 * [--cases gen16,rm] [--repeats 3] [--no-peer] [--strong]`. Random weights, the shapes of shapes.ts; ratios are ours over the peer's.
 * `--strong`: also over what a careful user gets from transformers (a static cache with a compiled step; batches of like lengths).
 */

import { initModel, type Model, packSequences, Sampler } from '../src/models/index.ts';
import { AdamW, clipGradNorm } from '../src/nn/index.ts';
import {
  cudaMemory,
  emptyCache,
  resetPeakMemory,
  scope,
  synchronize,
  type Tensor,
  threads,
} from '../src/tensor/index.ts';
import type { Reading } from './run.ts';
import { type PeerReading, runPeer } from './support/peer.ts';
import { CPU_LENGTHS, GPU_LENGTHS, LLAMA_15M, QWEN3_06B, randomIds } from './support/shapes.ts';

interface Bench {
  device: string;
  cuda: boolean;
  shape: typeof LLAMA_15M | typeof QWEN3_06B;
  lengths: number[];
  repeats: number;
}

interface Measured {
  tokens: number;
  seconds: number;
  peakGiB?: number;
}

const model = (bench: Bench): Model => initModel(bench.shape, { seed: 0, device: bench.device });

/** The fastest of some repeats after a warm-up, and CUDA's peak memory. */
async function timed(bench: Bench, tokens: number, step: () => unknown): Promise<Measured> {
  await step();
  if (bench.cuda) {
    synchronize();
    resetPeakMemory();
  }
  let seconds = Number.POSITIVE_INFINITY;
  for (let i = 0; i < bench.repeats; i++) {
    const start = performance.now();
    await step();
    if (bench.cuda) synchronize();
    seconds = Math.min(seconds, (performance.now() - start) / 1000);
  }
  return { tokens, seconds, ...(bench.cuda ? { peakGiB: cudaMemory().peak / 2 ** 30 } : {}) };
}

async function generation(bench: Bench, count: number): Promise<Measured> {
  using subject = model(bench);
  const [promptLength, maxNewTokens] = bench.cuda ? [128, 512] : [32, 128];
  using sampler = new Sampler(subject, { slots: count });
  const requests = Array.from({ length: count }, (_, i) => ({
    prompt: randomIds(promptLength, bench.shape.vocab_size, i),
    maxNewTokens,
    topP: 0.9,
    seed: i,
  }));
  return await timed(bench, count * maxNewTokens, () => sampler.generate(requests));
}

/** Bradley–Terry on one packed batch, clipped, AdamW: what `attune train reward` does in a step. */
async function reward(bench: Bench, checkpointing: boolean): Promise<Measured> {
  using subject = model(bench);
  const head = subject.addHead('reward', 1);
  subject.decoder.requiresGrad_();
  const optimizer = new AdamW(subject.trainable(), { lr: 1e-5 });
  const sequences = bench.lengths.map((length, i) => randomIds(length, bench.shape.vocab_size, i));
  const half = sequences.length / 2;
  const measured = await timed(bench, sum(bench.lengths), () =>
    scope(() => {
      const batch = packSequences(sequences, bench.device);
      const last = packSequences([batch.starts.slice(1).map((end) => end - 1)], bench.device).ids;
      const loss = (hidden: Tensor) => {
        const [chosen, rejected] = head.forward(hidden.indexSelect(0, last)).squeeze(1).split(half) as [Tensor, Tensor];
        return chosen.sub(rejected).logSigmoid().mean().neg();
      };
      subject.decoder.backward(batch, loss, { checkpointing });
      clipGradNorm(optimizer.parameters, 10);
      optimizer.step();
      optimizer.zeroGrad();
    }),
  );
  optimizer.dispose();
  return measured;
}

const cases: Record<string, (bench: Bench) => Promise<Measured>> = {
  gen16: (bench) => generation(bench, 16),
  gen128: (bench) => generation(bench, 128),
  rm: (bench) => reward(bench, false),
  rm_ckpt: (bench) => reward(bench, true),
};

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const option = (name: string, fallback: string) => {
    const at = args.indexOf(`--${name}`);
    return at < 0 ? fallback : (args[at + 1] ?? fallback);
  };
  const device = option('device', 'cpu');
  const cuda = device.startsWith('cuda');
  const bench: Bench = {
    device: cuda && device === 'cuda' ? 'cuda:0' : device,
    cuda,
    shape: cuda ? QWEN3_06B : LLAMA_15M,
    lengths: cuda ? GPU_LENGTHS : CPU_LENGTHS,
    repeats: Number(option('repeats', '3')),
  };
  const names = option('cases', cuda ? 'gen16,gen128,rm,rm_ckpt' : 'gen16,rm').split(',');
  for (const name of names) {
    const run = cases[name];
    if (run === undefined) throw new Error(`no case "${name}"; there are ${Object.keys(cases).join(', ')}`);
    // Both within one case, so that they meet the machine in the same state.
    const measured = await run(bench);
    if (cuda) emptyCache();
    const reading = row(name, measured, args.includes('--no-peer') ? undefined : peer(bench, name));
    const strong = args.includes('--strong') ? peer(bench, `${name}_strong`)?.tokens_per_s : undefined;
    if (strong !== undefined) {
      reading.strongTokensPerSecond = strong;
      reading.strongRatio = Math.round((100 * measured.tokens) / measured.seconds / strong) / 100;
    }
    yield reading;
  }
}

function peer(bench: Bench, name: string): PeerReading | undefined {
  const threadArgs = bench.cuda ? [] : ['--threads', String(threads())];
  const shared = [
    '--lengths',
    bench.lengths.join(','),
    '--shape',
    JSON.stringify(bench.shape),
    '--repeats',
    String(bench.cuda ? Math.min(2, bench.repeats) : bench.repeats),
  ];
  return runPeer('models_peer.py', [
    '--device',
    bench.cuda ? 'cuda' : 'cpu',
    '--cases',
    name,
    ...threadArgs,
    ...shared,
  ]).get(name);
}

function row(name: string, measured: Measured, peer: PeerReading | undefined): Reading {
  const rate = measured.tokens / measured.seconds;
  const reading: Reading = {
    name,
    tokensPerSecond: Math.round(rate),
    milliseconds: Math.round(measured.seconds * 1e4) / 10,
  };
  if (measured.peakGiB !== undefined) reading.peakGiB = Math.round(measured.peakGiB * 100) / 100;
  if (peer?.tokens_per_s === undefined) return { ...reading, peer: peer?.error ?? 'none' };
  reading.peerTokensPerSecond = peer.tokens_per_s;
  if (peer.peak_gib !== undefined) reading.peerPeakGiB = peer.peak_gib;
  return { ...reading, ratio: Math.round((rate / peer.tokens_per_s) * 100) / 100 };
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
