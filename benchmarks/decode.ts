/**
 * How fast responses are written, at many batch sizes, model sizes and lengths:
 *
 *     npm run bench -- decode [--device cuda] [--cases 0.6b:1,0.6b:128,lora:16,long:16,mixed:256,8b:16] [--tokens 512] [--prompt 128] [--repeats 2] [--dtype float16] [--weights bfloat16] [--cache-dtype int8]
 *
 * A case is a shape and a number of sequences. `lora`: an adapter of rank 16 on all matrices; `long`: 2,048 tokens of prompt and as many
 * new ones; `mixed`: prompts and responses of 100 to 1,024 tokens at random, temperature 0.6, all submitted at once, on CUDA within a
 * cache of 21 GiB. Otherwise prompts of 128 tokens (on the CPU 32), or `--prompt`, and top-p 0.9. Random weights; the fastest of the repeats after a warm-up. On the CPU shapes are 15m, 316m and 1b.
 * `--weights bfloat16`: the weights' numbers are bf16's, whatever they are held in, as a checkpoint in bf16 gives them.
 */
import { parseArgs } from 'node:util';
import { addLora, type CacheDtype, initModel, type Model, Sampler } from '../src/models/index.ts';
import { Random } from '../src/random.ts';
import { cudaMemory, emptyCache, resetPeakMemory, synchronize } from '../src/tensor/index.ts';
import type { Reading } from './run.ts';
import {
  dtypeNamed,
  LLAMA_1B,
  LLAMA_15M,
  LLAMA_316M,
  QWEN3_4B,
  QWEN3_8B,
  QWEN3_06B,
  QWEN3_17B,
  randomIds,
  roundWeights,
} from './support/shapes.ts';

const shapes = {
  '0.6b': QWEN3_06B,
  '1.7b': QWEN3_17B,
  '4b': QWEN3_4B,
  '8b': QWEN3_8B,
  '15m': LLAMA_15M,
  '316m': LLAMA_316M,
  '1b': LLAMA_1B,
};

/** What a case adds to a shape. */
const kinds = ['lora', 'long', 'mixed'];

const GPU_CASES =
  '0.6b:1,0.6b:16,0.6b:32,0.6b:33,0.6b:64,0.6b:128,0.6b:256,lora:16,long:16,mixed:256,1.7b:16,4b:16,8b:16,8b:128';

/** Bound of the cache for `mixed` on CUDA. */
const MIXED_CACHE_BYTES = 21 * 2 ** 30;

interface Work {
  prompt: number[];
  maxNewTokens: number;
  topP?: number;
  temperature?: number;
  seed: number;
}

function workOf(kind: string, count: number, tokens: number, promptLength: number, vocabulary: number): Work[] {
  const random = new Random(7);
  const between = () => random.int(100, 1024);
  return Array.from({ length: count }, (_, seed) => {
    const one = (length: number, maxNewTokens: number) => ({
      prompt: randomIds(length, vocabulary, seed),
      maxNewTokens,
      seed,
    });
    if (kind === 'mixed') return { ...one(between(), between()), temperature: 0.6 };
    if (kind === 'long') return { ...one(2048, 2048), topP: 0.9 };
    return { ...one(promptLength, tokens), topP: 0.9 };
  });
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const options = {
    device: { type: 'string', default: 'cpu' },
    cases: { type: 'string' },
    tokens: { type: 'string' },
    prompt: { type: 'string' },
    repeats: { type: 'string', default: '2' },
    slots: { type: 'string' },
    dtype: { type: 'string' },
    weights: { type: 'string' },
    'cache-dtype': { type: 'string', default: 'model' },
  } as const;
  const { values } = parseArgs({ args, options });
  const cuda = values.device.startsWith('cuda');
  const device = values.device === 'cuda' ? 'cuda:0' : values.device;
  const tokens = Number(values.tokens ?? (cuda ? 512 : 64));
  const names = (values.cases ?? (cuda ? GPU_CASES : '15m:1,15m:16')).split(',');
  for (const name of names) {
    const [what = '', count = ''] = name.split(':');
    const kind = kinds.includes(what) ? what : '';
    const shape = (kind === '' ? what : cuda ? '0.6b' : '15m') as keyof typeof shapes;
    if (!(shape in shapes) || !(Number(count) >= 1))
      throw new Error(
        `no case "${name}"; a case is one of ${[...Object.keys(shapes), ...kinds].join(', ')} and a number, as in 0.6b:16`,
      );
    if (cuda) emptyCache();
    using model = initModel(shapes[shape], {
      seed: 0,
      device,
      ...(values.dtype ? { dtype: dtypeNamed(values.dtype) } : {}),
    });
    if (values.weights) roundWeights(model, values.weights);
    if (kind === 'lora') addLora(model, { r: 16 });
    const work = workOf(
      kind,
      Number(count),
      tokens,
      Number(values.prompt ?? (cuda ? 128 : 32)),
      shapes[shape].vocab_size,
    );
    const settings = {
      cuda,
      repeats: Number(values.repeats),
      slots: Number(values.slots ?? 0),
      cacheDtype: values['cache-dtype'] as CacheDtype,
      ...(cuda && kind === 'mixed' ? { maxCacheBytes: MIXED_CACHE_BYTES } : {}),
    };
    yield {
      name: values['cache-dtype'] === 'model' ? name : `${name} ${values['cache-dtype']}`,
      ...(await measured(model, work, settings)),
    };
  }
}

async function measured(
  model: Model,
  work: Work[],
  {
    cuda,
    repeats,
    slots,
    ...kept
  }: { cuda: boolean; repeats: number; slots: number; cacheDtype: CacheDtype; maxCacheBytes?: number },
): Promise<Record<string, number>> {
  const maxLength = Math.max(...work.map(({ prompt, maxNewTokens }) => prompt.length + maxNewTokens));
  using sampler = new Sampler(model, { slots: slots > 0 ? slots : work.length, maxLength, ...kept });
  await sampler.generate(work.map((each) => ({ ...each, maxNewTokens: Math.min(20, each.maxNewTokens) })));
  if (cuda) resetPeakMemory();
  let seconds = Number.POSITIVE_INFINITY;
  let written = 0;
  for (let i = 0; i < repeats; i++) {
    if (cuda) synchronize();
    const start = performance.now();
    const responses = await sampler.generate(work);
    seconds = Math.min(seconds, (performance.now() - start) / 1000);
    written = responses.flat().reduce((sum, response) => sum + response.ids.length, 0);
  }
  const reading: Record<string, number> = {
    tokensPerSecond: Math.round(written / seconds),
    microsecondsPerToken: Math.round((seconds / written) * 1e8) / 100,
    cacheGiB: round(sampler.cacheBytes / 2 ** 30),
    preemptions: sampler.cacheUse.preemptions,
  };
  if (cuda) reading.peakGiB = round(cudaMemory().peak / 2 ** 30);
  return reading;
}

const round = (value: number): number => Math.round(value * 100) / 100;
