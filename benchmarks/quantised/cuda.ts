/** A GPU at Qwen3-8B's shape: decoding, a step of DPO on adapters, and the scoring of 64 responses, in bf16 and quantised. */
import { headOutputs, initModel, type Model, type QuantType } from '../../src/models/index.ts';
import { QUANT_BLOCK, QUANT_RUN, QuantisedMatrix } from '../../src/nn/quantised.ts';
import { cudaMemory, emptyCache, ones, randint, scope, synchronize, tensor } from '../../src/tensor/index.ts';
import type { Reading } from '../run.ts';
import { GPU_LENGTHS, QWEN3_8B, randomIds } from '../shapes.ts';
import { dpoSteps } from '../steps/preference.ts';
import { decodeRate } from './decoding.ts';

const DEVICE = 'cuda:0';

/** A matrix of random codes, made on the device: to quantise as many weights on the host would take minutes. */
function randomMatrix(parts: readonly number[], inputs: number, type: QuantType): QuantisedMatrix {
  const bytes = (count: number) => randint(0, 256, [count], { dtype: 'uint8', device: DEVICE });
  return scope(() =>
    QuantisedMatrix.join(
      parts.map((outputs) => {
        const count = outputs * inputs;
        const blocks = count / QUANT_BLOCK;
        const scale = (size: number) => ones([size], { device: DEVICE }).mul(0.05);
        if (type === 'int8') {
          const codes = bytes(count).to('float32').sub(128).to('int8').reshape(outputs, inputs);
          return { outputs, inputs, codes, scales: scale(outputs), nested: null, levels: null, block: QUANT_BLOCK };
        }
        return {
          outputs,
          inputs,
          codes: bytes(count / 2),
          scales: bytes(blocks),
          block: QUANT_BLOCK,
          nested: { largest: scale(Math.ceil(blocks / QUANT_RUN)), offset: 0.05 },
          levels: tensor(Float32Array.from({ length: 16 }, (_, i) => (i - 7.5) / 7.5)),
        };
      }),
      DEVICE,
    ),
  );
}

function subject(type: QuantType | null): Model {
  const model = initModel(QWEN3_8B, { seed: 0, device: DEVICE });
  if (type === null) return model;
  for (const projection of model.decoder.layers.flatMap((layer) => [...layer.projections])) {
    projection.quantised = randomMatrix(
      projection.parts.map((part) => part.outputs),
      projection.inputs,
      type,
    );
    projection.weight?.dispose();
    projection.weight = null;
  }
  emptyCache();
  return model;
}

const gib = (bytes: number) => Math.round((bytes / 2 ** 30) * 100) / 100;

/** Milliseconds of the scoring of 64 responses by each kind: the models take turns, so that all see the same clock of the GPU. */
function scoring(kinds: readonly (QuantType | null)[]): number[] {
  const models = kinds.map(subject);
  for (const model of models) model.addHead('reward', 1);
  const sequences = GPU_LENGTHS.map((length, i) => ({
    ids: randomIds(length, QWEN3_8B.vocab_size, i),
    places: [length - 1],
  }));
  const best = kinds.map(() => Number.POSITIVE_INFINITY);
  for (let turn = 0; turn < 5; turn++) {
    for (const [i, model] of models.entries()) {
      synchronize();
      const start = performance.now();
      headOutputs(model, sequences);
      synchronize();
      if (turn > 0) best[i] = Math.min(best[i] as number, performance.now() - start);
    }
  }
  for (const model of models) model.dispose();
  return best;
}

export async function* cudaReadings(repeats: number, batches: readonly number[]): AsyncGenerator<Reading> {
  const kinds = [null, 'int8', 'int4'] as const;
  const rates: Record<string, number> = {};
  for (const type of kinds) {
    const name = type ?? 'bf16';
    using model = subject(type);
    synchronize();
    const weights = gib(cudaMemory().allocated);
    for (const batch of batches) {
      const rate = await decodeRate(model, QWEN3_8B.vocab_size, { batch, tokens: 128, repeats });
      rates[`${name} ${batch}`] = rate;
      const ratio = rate / (rates[`bf16 ${batch}`] as number);
      yield {
        name: `decode ${name}, batch ${batch}`,
        tokensPerSecond: round(rate),
        ofBf16: round(ratio),
        weightsGiB: weights,
      };
    }
  }
  emptyCache();
  let bf16 = 0;
  for (const type of kinds) {
    emptyCache();
    const { seconds, peakGiB } = await dpoSteps({ cuda: true, shape: QWEN3_8B, steps: 3 }, true, () => subject(type));
    if (type === null) bf16 = seconds;
    yield {
      name: `dpo ${type === null ? 'lora bf16' : `qlora ${type}`}`,
      milliseconds: round(seconds * 1000),
      ofBf16: round(seconds / bf16),
      peakGiB: round(peakGiB ?? 0),
    };
  }
  emptyCache();
  const scored = scoring(kinds);
  for (const [i, type] of kinds.entries()) {
    const milliseconds = scored[i] as number;
    yield {
      name: `score 64, ${type ?? 'bf16'}`,
      milliseconds: round(milliseconds),
      ofBf16: round(milliseconds / (scored[0] as number)),
    };
  }
}

const round = (value: number) => Math.round(value * 100) / 100;
