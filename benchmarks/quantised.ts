/**
 * Decoding from 8 and 4 bits: `npm run bench -- quantised [--batches 1,16] [--tokens 24] [--repeats 3] [--no-peer]`. On the CPU a Llama
 * of 316M parameters in f32, int8 and int4, beside llama.cpp with the same weights in f32, q8_0 and q4_0 in one run. With
 * `--device cuda` Qwen3-8B's shape beside bf16, a step of DPO on adapters and the scoring of 64 responses. Random weights.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { initModel, saveModel, weightBytes } from '../src/models/index.ts';
import { threads } from '../src/tensor/index.ts';
import { cudaReadings } from './quantised/cuda.ts';
import { decodeRate } from './quantised/decoding.ts';
import { addTokenizer, llamaRates } from './quantised/llama-cpp.ts';
import type { Reading } from './run.ts';
import { LLAMA_316M as shape } from './shapes.ts';

const kinds = [
  { name: 'f32', quantType: undefined, gguf: 'f32' },
  { name: 'int8', quantType: 'int8', gguf: 'q8_0' },
  { name: 'int4', quantType: 'int4', gguf: 'q4_0' },
] as const;

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const option = (name: string, fallback: string) => {
    const at = args.indexOf(`--${name}`);
    return at < 0 ? fallback : (args[at + 1] ?? fallback);
  };
  const repeats = Number(option('repeats', '3'));
  const batches = option('batches', '1,16').split(',').map(Number);
  if (option('device', 'cpu').startsWith('cuda')) {
    yield* cudaReadings(repeats, batches);
    return;
  }
  const works = batches.map((batch) => ({ batch, tokens: Number(option('tokens', '24')), repeats }));
  const ours = new Map<string, number[]>();
  const folder = mkdtempSync(join(tmpdir(), 'attune-quantised-'));
  try {
    const peer = args.includes('--no-peer') ? { missing: 'not asked' } : await peerOrNot();
    for (const { name, quantType, gguf } of kinds) {
      const rates: number[] = [];
      const model = initModel(shape, { seed: 0, ...(quantType && { quantType }) });
      for (const work of works) rates.push(await decodeRate(model, shape.vocab_size, work));
      const bytes = weightBytes(model, 'float32', quantType);
      if (name === 'f32' && 'llama' in peer) {
        saveModel(model, folder);
        addTokenizer(folder, shape.vocab_size);
      }
      model.dispose();
      ours.set(name, rates);
      const theirs =
        'llama' in peer
          ? await llamaRates(
              peer.llama,
              { folder, type: gguf, vocabulary: shape.vocab_size, threads: threads() },
              works,
            )
          : null;
      for (const [i, { batch }] of works.entries()) {
        const rate = rates[i] as number;
        yield {
          name: `${name}, batch ${batch}`,
          tokensPerSecond: round(rate),
          weightsMiB: Math.round(bytes / 2 ** 20),
          ofF32: round(rate / (ours.get('f32')?.[i] as number)),
          ...(theirs === null
            ? { llamaCpp: 'none' }
            : {
                llamaCpp: round(theirs.rates[i] as number),
                llamaCppMiB: Math.round(theirs.bytes / 2 ** 20),
                ofLlamaCpp: round(rate / (theirs.rates[i] as number)),
              }),
        };
      }
    }
    if ('llama' in peer) await peer.llama.dispose();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Only where it is wanted: node-llama-cpp is installed when it is first asked for. */
async function peerOrNot() {
  const { llamaCpp } = await import('../tests/llama-cpp/llama-cpp.ts');
  const found = await llamaCpp();
  if ('missing' in found) console.error(`no llama.cpp here: ${found.missing}`);
  return found;
}

const round = (value: number) => Math.round(value * 100) / 100;
