/**
 * A reward model's step as `attune train reward` takes it — objective, metrics, clipping, schedule, AdamW, the loop's own
 * bookkeeping — beside plain transformers: `npm run bench -- train [--device cuda] [--cases rm,rm_ckpt] [--steps 4] [--no-peer]`.
 * The bare model's step, without a trainer around it, is `npm run bench -- models --cases rm`.
 */
import { packBatch } from '../src/data/index.ts';
import { initModel } from '../src/models/index.ts';
import { AdamW } from '../src/nn/index.ts';
import { cudaMemory, emptyCache, resetPeakMemory, synchronize, threads } from '../src/tensor/index.ts';
import { type TrainTask, trainLoop } from '../src/trainers/loop.ts';
import { preferenceObjective } from '../src/trainers/objectives.ts';
import { onDevice } from '../src/trainers/step-batches.ts';
import { runPeer } from './peer.ts';
import type { Reading } from './run.ts';
import { CPU_LENGTHS, GPU_LENGTHS, LLAMA_15M, QWEN3_06B, randomIds } from './shapes.ts';

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const option = (name: string, fallback: string) => {
    const at = args.indexOf(`--${name}`);
    return at < 0 ? fallback : (args[at + 1] ?? fallback);
  };
  const cuda = option('device', 'cpu').startsWith('cuda');
  const shape = cuda ? QWEN3_06B : LLAMA_15M;
  const lengths = cuda ? GPU_LENGTHS : CPU_LENGTHS;
  for (const name of option('cases', cuda ? 'rm,rm_ckpt' : 'rm').split(',')) {
    const measured = await rewardSteps(shape, lengths, {
      device: cuda ? 'cuda:0' : 'cpu',
      steps: Number(option('steps', '4')),
      checkpointing: name === 'rm_ckpt',
    });
    const reading: Reading = { name, tokensPerSecond: Math.round(measured.tokensPerSecond) };
    if (cuda) reading.peakGiB = Math.round(measured.peakGiB * 100) / 100;
    if (cuda) emptyCache();
    const peerArgs = ['--device', cuda ? 'cuda' : 'cpu', '--cases', name, '--lengths', lengths.join(',')];
    const more = ['--shape', JSON.stringify(shape), ...(cuda ? [] : ['--threads', String(threads())])];
    const peer = args.includes('--no-peer') ? undefined : runPeer('models_peer.py', [...peerArgs, ...more]).get(name);
    if (peer?.tokens_per_s !== undefined) {
      reading.peerTokensPerSecond = peer.tokens_per_s;
      reading.ratio = Math.round((measured.tokensPerSecond / peer.tokens_per_s) * 100) / 100;
      if (peer.peak_gib !== undefined) reading.peerPeakGiB = peer.peak_gib;
    }
    yield reading;
  }
}

/** The fastest step but the first. */
async function rewardSteps(
  shape: Record<string, unknown>,
  lengths: readonly number[],
  options: { device: string; steps: number; checkpointing: boolean },
): Promise<{ tokensPerSecond: number; peakGiB: number }> {
  const cuda = options.device !== 'cpu';
  using model = initModel(shape, { seed: 0, device: options.device });
  model.addHead('reward', 1);
  model.decoder.requiresGrad_();
  const objective = preferenceObjective(model, {});
  const optimizer = new AdamW(model.trainable(), { lr: 1e-5 });
  const sequences = lengths.map((length, i) => {
    const ids = Int32Array.from(randomIds(length, shape.vocab_size as number, i));
    return { ids, promptLength: 0, spans: Int32Array.of(0, length), marks: new Int32Array(0) };
  });
  const half = sequences.length / 2;
  const facts = { label: true, margin: 0, group: 0, source: -1 };
  const pairs = sequences.slice(0, half).map((chosen, example) => ({
    ...{ sequences: [chosen, sequences[half + example] as typeof chosen], example, ...facts },
  }));
  const batch = packBatch(pairs);
  const task: TrainTask<typeof batch, { pairs: number }> = {
    optimizer,
    totalSteps: options.steps + 1,
    plan: () => ({ updates: [{ batches: [batch], totals: objective.totals([batch]) }], examples: half, epoch: 0 }),
    backward(given, totals) {
      const packed = onDevice(given, options.device);
      let metrics = {};
      const { checkpointing } = options;
      const lossOf = (hidden: Parameters<typeof objective.loss>[0]) => {
        const result = objective.loss(hidden, packed, given, totals);
        metrics = result.metrics;
        return result.loss;
      };
      return { ...metrics, loss: model.decoder.backward(packed, lossOf, { checkpointing }) };
    },
    saveModel: () => {},
    loadModel: () => {},
    state: () => null,
    restore: () => {},
  };
  let seconds = Number.POSITIVE_INFINITY;
  for await (const { step, metrics } of trainLoop(task, { lr: 1e-5, maxGradNorm: 10 })) {
    if (cuda) synchronize();
    if (step === 1 && cuda) resetPeakMemory();
    if (step > 1) seconds = Math.min(seconds, metrics['train/step_time'] as number);
  }
  optimizer.dispose();
  return { tokensPerSecond: batch.tokens / seconds, peakGiB: cuda ? cudaMemory().peak / 2 ** 30 : 0 };
}
