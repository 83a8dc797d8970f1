/**
 * A copy of a model whose blocks' matrices are quantised. Embeddings, norms, biases and heads are shared, so that both
 * together need little more memory than the original.
 */
import { UserError } from '../../errors.ts';
import { Decoder } from '../../models/decoder/decoder.ts';
import { Layer } from '../../models/decoder/layer.ts';
import { Projection } from '../../models/decoder/projection.ts';
import { Model, mergeAdapters, type QuantType, unloadAdapters } from '../../models/index.ts';
import { QuantisedMatrix } from '../../nn/index.ts';
import type { Progress } from '../../progress.ts';
import { noGrad, scope } from '../../tensor/index.ts';

export interface QuantisedTwin {
  quantised: Model;
  /** Frees the quantised matrices. The rest belongs to the original. */
  [Symbol.dispose](): void;
}

/** Adapters are first merged into the original, so that the effective weights are quantised. */
export function quantisedTwin(original: Model, type: QuantType, progress?: Progress): QuantisedTwin {
  const { decoder } = original;
  if (original.adapters !== null) {
    mergeAdapters(original);
    unloadAdapters(original);
  }
  if (decoder.quantType !== null)
    throw new UserError(`${original.folder ?? 'The model'} is ${decoder.quantType} already; quantise the original.`);
  const bar = progress?.start(`quantising to ${type}`, decoder.layers.length, 'layers');
  const made: QuantisedMatrix[] = [];
  const quantise = (projection: Projection): Projection => {
    const matrix = noGrad(() =>
      scope(() => {
        const rows = projection.parts.map((_, i) => projection.weightOf(i).detach().to({ device: 'cpu' }));
        return QuantisedMatrix.of(rows, type, projection.device);
      }),
    );
    made.push(matrix);
    return new Projection(projection.parts, matrix, projection.bias);
  };
  const layers = decoder.layers.map((layer) => {
    const { qkv, out, up, down } = layer.weights;
    const weights = { qkv: quantise(qkv), out: quantise(out), up: quantise(up), down: quantise(down) };
    bar?.advance();
    return new Layer(layer.index, layer.spec, { ...layer.weights, ...weights });
  });
  bar?.done();
  const { config, head, folder, hubName } = original;
  const quantised = new Model(new Decoder(decoder.spec, { ...decoder.weights, layers }), config, head, folder, hubName);
  Object.assign(quantised.notes, original.notes);
  return {
    quantised,
    [Symbol.dispose]: () => {
      quantised.decoder.disposeTables();
      for (const matrix of made) matrix.dispose();
    },
  };
}
