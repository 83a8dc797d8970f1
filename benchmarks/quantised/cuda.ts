/** A GPU at Qwen3-8B's shape: decoding, a step of DPO on adapters, and the scoring of 64 responses, in bf16 and quantised. */

import type { Projection } from '../../src/models/decoder/projection.ts';
import { headOutputs, initModel, type Model, type Precision, type QuantType } from '../../src/models/index.ts';
import { QUANT_BLOCK, QUANT_RUN, QuantisedMatrix } from '../../src/nn/quantised.ts';
import {
  aten,
  cudaMemory,
  emptyCache,
  noGrad,
  ones,
  randint,
  scope,
  synchronize,
  tensor,
} from '../../src/tensor/index.ts';
import type { Reading } from '../run.ts';
import { dpoSteps } from '../steps/preference.ts';
import { GPU_LENGTHS, QWEN3_8B, randomIds } from '../support/shapes.ts';
import { decodeRate } from './decoding.ts';

const DEVICE = 'cuda:0';

/** The weights in 8 bits, rounded on the device: on the host as many would take minutes. */
function eightBits(projection: Projection): QuantisedMatrix {
  const { inputs } = projection;
  const parts = projection.parts.map(({ outputs }, i) => {
    const weight = projection.weightOf(i).to('float32');
    const largest = weight.abs().amax([1], true);
    const codes = aten('round', weight.div(largest).mul(127)).to('int8');
    const scales = largest.reshape(-1);
    return { outputs, inputs, codes, scales, nested: null, levels: null, block: QUANT_BLOCK };
  });
  return QuantisedMatrix.join(parts, DEVICE);
}

/** Random codes of 4 bits: nothing rounds to those on the device. */
function fourBits({ parts, inputs }: Projection): QuantisedMatrix {
  const bytes = (count: number) => randint(0, 256, [count], { dtype: 'uint8', device: DEVICE });
  const drawn = parts.map(({ outputs }) => {
    const count = outputs * inputs;
    const blocks = count / QUANT_BLOCK;
    const largest = ones([Math.ceil(blocks / QUANT_RUN)], { device: DEVICE }).mul(0.05);
    return {
      outputs,
      inputs,
      codes: bytes(count / 2),
      scales: bytes(blocks),
      block: QUANT_BLOCK,
      nested: { largest, offset: 0.05 },
      levels: tensor(Float32Array.from({ length: 16 }, (_, i) => (i - 7.5) / 7.5)),
    };
  });
  return QuantisedMatrix.join(drawn, DEVICE);
}

function subject(type: QuantType | null): Model {
  const model = initModel(QWEN3_8B, { seed: 0, device: DEVICE });
  if (type === null) return model;
  for (const projection of model.decoder.layers.flatMap((layer) => [...layer.projections])) {
    projection.quantised = scope(() => noGrad(() => (type === 'int8' ? eightBits(projection) : fourBits(projection))));
    projection.weight?.dispose();
    projection.weight = null;
  }
  emptyCache();
  return model;
}

const gib = (bytes: number) => Math.round((bytes / 2 ** 30) * 100) / 100;

const TURNS = 5;

/**
 * Milliseconds of the scoring of 64 responses by each kind, the median of its turns. At a GPU's power limit a time
 * may depend on what ran before, so each kind scores twice in its turn, and the second time counts.
 */
function scoring(kinds: readonly (QuantType | null)[]): Record<string, number> {
  const models = kinds.map(subject);
  for (const model of models) model.addHead('reward', 1);
  const ways: [name: string, model: Model, precision: Precision][] = [];
  for (const [i, type] of kinds.entries()) {
    ways.push([type ?? 'bf16', models[i] as Model, 'exact']);
    if (type === 'int8') ways.push(['int8-fast', models[i] as Model, 'fast']);
  }
  const sequences = GPU_LENGTHS.map((length, i) => ({
    ids: randomIds(length, QWEN3_8B.vocab_size, i),
    places: [length - 1],
  }));
  const times: Record<string, number[]> = Object.fromEntries(ways.map(([name]) => [name, []]));
  for (let turn = 0; turn < TURNS; turn++) {
    for (const [name, model, precision] of ways) {
      headOutputs(model, sequences, { precision });
      synchronize();
      const start = performance.now();
      headOutputs(model, sequences, { precision });
      synchronize();
      times[name]?.push(performance.now() - start);
    }
  }
  for (const model of models) model.dispose();
  const median = (own: number[]) => own.sort((a, b) => a - b)[TURNS >> 1] as number;
  return Object.fromEntries(Object.entries(times).map(([name, own]) => [name, median(own)]));
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
    const { seconds, peakGiB } = await dpoSteps({ cuda: true, shape: QWEN3_8B, steps: 3 }, true, {
      make: () => subject(type),
    });
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
  for (const [name, milliseconds] of Object.entries(scored))
    yield {
      name: `score 64, ${name}`,
      milliseconds: round(milliseconds),
      ofBf16: round(milliseconds / (scored.bf16 as number), 1000),
    };
}

const round = (value: number, parts = 100) => Math.round(value * parts) / parts;
