/**
 * Training steps as the product takes them — objective, metrics, clipping, schedule, AdamW, the loop's own bookkeeping — beside
 * the same work elsewhere, tokens/s and CUDA's peak memory:
 *
 *     npm run bench -- train [--device cuda] [--cases rm,rm_ckpt,dpo,dpo_lora,dpo_prompts,grpo,grpo16,grpo_lora,gap,long,long_ckpt] [--steps 4]
 *                            [--no-peer] [--shape 15m|110m|0.6b] [--dtype bfloat16] [--cache-dtype int8]
 *
 * The peer is plain transformers (models_peer.py); for DPO on the CPU it is TRL's own trainer (trl_peer.py); dpo_prompts (pairs with prompts of 200 tokens more), grpo16 (16 prompts in
 * place of 2), grpo_lora, gap (250 GRPO steps of short answers, for the sampler's log-probs against the trainer's) and long (one sequence of 32,768 tokens) have none. A GRPO step's tokens are those it writes. The bare model's step, without a trainer around it, is `npm run bench -- models --cases rm`.
 */
import { UserError } from '../src/errors.ts';
import type { CacheDtype } from '../src/models/index.ts';
import { emptyCache, threads } from '../src/tensor/index.ts';
import type { Reading } from './run.ts';
import { type GrpoMeasured, gapSteps, grpoParts, grpoSteps } from './steps/grpo.ts';
import { longSteps } from './steps/long.ts';
import type { Measured, StepWork } from './steps/measured.ts';
import { dpoSteps } from './steps/preference.ts';
import { rewardSteps } from './steps/reward.ts';
import { runPeer } from './support/peer.ts';
import { CPU_LENGTHS, dtypeNamed, GPU_LENGTHS, LLAMA_15M, LLAMA_110M, QWEN3_06B } from './support/shapes.ts';

type Case = (work: StepWork) => Promise<Measured & { tokens: number }>;

const cases: Record<string, Case> = {
  rm: (work) => rewardSteps(work, false),
  rm_ckpt: (work) => rewardSteps(work, true),
  dpo: (work) => dpoSteps(work, false),
  dpo_lora: (work) => dpoSteps(work, true),
  dpo_prompts: (work) => dpoSteps(work, false, { prompt: work.cuda ? 200 : 64 }),
  grpo: (work) => grpoSteps(work, 2),
  grpo16: (work) => grpoSteps(work, 16),
  grpo_lora: (work) => grpoSteps(work, 2, { lora: true }),
  gap: gapSteps,
  long: (work) => longSteps(work, false),
  long_ckpt: (work) => longSteps(work, true),
};

const shapes = { '15m': LLAMA_15M, '110m': LLAMA_110M, '0.6b': QWEN3_06B };

/** Cases without a peer. */
const alone = new Set(['dpo_prompts', 'grpo16', 'grpo_lora', 'gap', 'long', 'long_ckpt']);

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const option = (name: string, fallback: string) => {
    const at = args.indexOf(`--${name}`);
    return at < 0 ? fallback : (args[at + 1] ?? fallback);
  };
  const cuda = option('device', 'cpu').startsWith('cuda');
  const named = shapes[option('shape', cuda ? '0.6b' : '15m') as keyof typeof shapes];
  if (named === undefined) throw new UserError(`--shape is one of ${Object.keys(shapes).join(', ')}`);
  const shape = { ...named, dtype: dtypeNamed(option('dtype', named.dtype)) };
  const names = option('cases', cuda ? Object.keys(cases).join() : 'rm,dpo,dpo_lora,grpo').split(',');
  for (const name of names) {
    const steps = cases[name];
    if (steps === undefined) throw new Error(`no case "${name}"; there are ${Object.keys(cases).join(', ')}`);
    const cacheDtype = option('cache-dtype', 'model') as CacheDtype;
    const measured = await steps({ cuda, shape, steps: Number(option('steps', '4')), cacheDtype });
    const rate = measured.tokens / measured.seconds;
    const reading: Reading = { name, tokensPerSecond: Math.round(rate) };
    if ('samplerGap' in measured) Object.assign(reading, grpoParts(measured as GrpoMeasured));
    if (measured.peakGiB !== undefined) reading.peakGiB = Math.round(measured.peakGiB * 100) / 100;
    if (cuda) emptyCache();
    const peer = args.includes('--no-peer') || alone.has(name) ? undefined : peerOf(name, shape, cuda);
    if (peer?.tokens_per_s !== undefined) {
      reading.peerTokensPerSecond = peer.tokens_per_s;
      reading.ratio = Math.round((rate / peer.tokens_per_s) * 100) / 100;
      if (peer.peak_gib !== undefined) reading.peerPeakGiB = peer.peak_gib;
    } else if (peer?.error !== undefined) reading.peer = peer.error;
    yield reading;
  }
}

function peerOf(name: string, given: typeof LLAMA_15M, cuda: boolean) {
  const shape = ['--shape', JSON.stringify(given)];
  const lengths = ['--lengths', (cuda ? GPU_LENGTHS : CPU_LENGTHS).join(',')];
  const work = ['--cases', name, ...shape, ...lengths, ...(cuda ? [] : ['--threads', String(threads())])];
  if (!cuda && name.startsWith('dpo')) return runPeer('trl_peer.py', work).get(name);
  return runPeer('models_peer.py', ['--device', cuda ? 'cuda' : 'cpu', ...work]).get(name);
}
