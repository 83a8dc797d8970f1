/**
 * Decoding from 8 and 4 bits: `npm run bench -- quantised [--shape 316m|1b|15m] [--kinds f32,bf16,int8,int8-fast,int4,int4-fast]
 * [--batches 1,16] [--tokens 24] [--repeats 3] [--weights bfloat16] [--no-peer]`. On the CPU a Llama in f32, bf16, int8 and int4, the last two exact and with
 * `precision: 'fast'` (whose `weightsMiB` has what it holds besides), beside llama.cpp with the same weights in f32, bf16, q8_0 and q4_0; all take their rounds in turn.
 * `--weights bfloat16`: those of plain models are bf16's numbers, as a checkpoint in bf16 gives them.
 * With `--device cuda` Qwen3-8B's shape beside bf16, a step of DPO on adapters and the scoring of 64
 * responses. Random weights.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../src/errors.ts';
import { initModel, type Model, type Sampler, saveModel, weightBytes } from '../src/models/index.ts';
import { FastWeights } from '../src/models/weights/fast-weights.ts';
import { threads } from '../src/tensor/index.ts';
import { cudaReadings } from './quantised/cuda.ts';
import { DecodeClock, ourDecoding, warmSampler } from './quantised/decoding.ts';
import { addTokenizer, type LlamaModel, openLlama } from './quantised/llama-cpp.ts';
import type { Reading } from './run.ts';
import { LLAMA_1B, LLAMA_15M, LLAMA_316M, roundWeights } from './support/shapes.ts';

const kinds = [
  { name: 'f32', dtype: 'float32', quantType: undefined, precision: 'exact', gguf: 'f32' },
  { name: 'bf16', dtype: 'bfloat16', quantType: undefined, precision: 'exact', gguf: 'bf16' },
  { name: 'int8', dtype: 'float32', quantType: 'int8', precision: 'exact', gguf: 'q8_0' },
  { name: 'int8-fast', dtype: 'float32', quantType: 'int8', precision: 'fast', gguf: 'q8_0' },
  { name: 'int4', dtype: 'float32', quantType: 'int4', precision: 'exact', gguf: 'q4_0' },
  { name: 'int4-fast', dtype: 'float32', quantType: 'int4', precision: 'fast', gguf: 'q4_0' },
] as const;
const shapes = { '15m': LLAMA_15M, '316m': LLAMA_316M, '1b': LLAMA_1B };

/** One kind of weights at one batch size, in both programs. */
interface Case {
  kind: (typeof kinds)[number];
  batch: number;
  ours: DecodeClock;
  peer: DecodeClock | null;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      device: { type: 'string', default: 'cpu' },
      shape: { type: 'string', default: '316m' },
      kinds: { type: 'string', default: kinds.map(({ name }) => name).join() },
      batches: { type: 'string', default: '1,16' },
      tokens: { type: 'string', default: '24' },
      repeats: { type: 'string', default: '3' },
      weights: { type: 'string', default: 'float32' },
      'no-peer': { type: 'boolean', default: false },
    },
  });
  const batches = values.batches.split(',').map(Number);
  const [tokens, repeats] = [Number(values.tokens), Number(values.repeats)];
  const asked = values.kinds.split(',');
  const unknown = asked.find((name) => !kinds.some((kind) => kind.name === name));
  if (unknown !== undefined) throw new UserError(`no kind "${unknown}": ${kinds.map(({ name }) => name).join(', ')}`);
  if (![...batches, tokens, repeats].every((count) => Number.isInteger(count) && count > 0))
    throw new UserError('--batches, --tokens and --repeats are whole numbers above zero');
  if (!/^(cpu|cuda(:\d+)?)$/.test(values.device)) throw new UserError(`no device "${values.device}": cpu or cuda`);
  if (values.device.startsWith('cuda')) {
    yield* cudaReadings(repeats, batches);
    return;
  }
  const shape = shapes[values.shape as keyof typeof shapes];
  if (shape === undefined) throw new UserError(`no shape ${values.shape}: ${Object.keys(shapes).join(', ')}`);
  const folder = mkdtempSync(join(tmpdir(), 'attune-quantised-'));
  const models = new Map<string, Model>();
  const peers = new Map<string, LlamaModel>();
  const samplers: Sampler[] = [];
  const peer = values['no-peer'] ? { missing: 'not asked' } : await peerOrNot();
  try {
    const cases: Case[] = [];
    for (const kind of kinds.filter(({ name }) => asked.includes(name))) {
      const { dtype, quantType, precision, gguf } = kind;
      if ('llama' in peer && !peers.has(gguf)) {
        if (peers.size === 0) {
          using plain = initModel(shape, { seed: 0 });
          roundWeights(plain, values.weights);
          saveModel(plain, folder);
          addTokenizer(folder, shape.vocab_size);
        }
        const file = { folder, type: gguf, vocabulary: shape.vocab_size, threads: threads() };
        peers.set(gguf, await openLlama(peer.llama, file));
      }
      const model = models.get(gguf) ?? initModel(shape, { seed: 0, dtype, ...(quantType && { quantType }) });
      if (!models.has(gguf)) roundWeights(model, values.weights);
      models.set(gguf, model);
      const sampler = await warmSampler(model, shape.vocab_size, { batch: Math.max(...batches), tokens }, precision);
      samplers.push(sampler);
      for (const batch of batches) {
        const work = { batch, tokens };
        const theirs = await peers.get(gguf)?.decoding(batch);
        cases.push({
          kind,
          batch,
          ours: new DecodeClock(work, ourDecoding(sampler, model, shape.vocab_size, batch)),
          peer: theirs === undefined ? null : new DecodeClock(work, theirs),
        });
      }
    }
    const clocks = cases.flatMap(({ ours, peer }) => (peer === null ? [ours] : [ours, peer]));
    for (const clock of clocks) await clock.warmUp();
    for (let round = 0; round < repeats; round++) for (const clock of clocks) await clock.round();
    for (const { kind, batch, ours, peer } of cases) {
      const rate = ours.tokensPerSecond;
      const plain = cases.find((other) => other.kind.name === 'f32' && other.batch === batch);
      const model = models.get(kind.gguf) as Model;
      const beside = kind.precision === 'fast' ? (FastWeights.of(model.decoder)?.bytes ?? 0) : 0;
      const bytes = weightBytes(model, kind.dtype, kind.quantType) + beside;
      yield {
        name: `${kind.name}, batch ${batch}`,
        tokensPerSecond: round(rate),
        weightsMiB: mebibytes(bytes),
        ...(plain && { ofF32: round(rate / plain.ours.tokensPerSecond) }),
        ...(peer === null
          ? { llamaCpp: 'none' }
          : {
              llamaCpp: round(peer.tokensPerSecond),
              llamaCppMiB: mebibytes((peers.get(kind.gguf) as LlamaModel).bytes),
              ofLlamaCpp: round(rate / peer.tokensPerSecond),
            }),
      };
    }
  } finally {
    for (const sampler of samplers) sampler.dispose();
    for (const model of models.values()) model.dispose();
    for (const model of peers.values()) await model.dispose();
    if ('llama' in peer) await peer.llama.dispose();
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
const mebibytes = (bytes: number) => Math.round(bytes / 2 ** 20);
