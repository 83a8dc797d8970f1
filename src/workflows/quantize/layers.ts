/** The error of each quantised block. */
import { type Model, packSequences } from '../../models/index.ts';
import { noGrad, scope, type Tensor } from '../../tensor/index.ts';

export interface LayerLoss {
  layer: number;
  /** ‖b̂(x) − b(x)‖ / ‖b(x) − x‖: the relative error of the block's residual update, on the original's inputs. */
  error: number;
}

/** Each block of both models gets the same input, so that errors of earlier blocks do not count. */
export function layerLosses(original: Model, quantised: Model, sequences: readonly ArrayLike<number>[]): LayerLoss[] {
  return scope(() =>
    noGrad(() => {
      const batch = packSequences(sequences, original.device);
      const pass = original.decoder.pass(batch);
      const own = quantised.decoder.pass(batch);
      let x = original.decoder.embed(batch.ids, batch.positions);
      return original.decoder.layers.map((layer, i) => {
        const after = layer.forward(x, pass);
        const found = quantised.decoder.layers[i]?.forward(x, own) as Tensor;
        const error = size(found.sub(after)) / Math.max(size(after.sub(x)), Number.MIN_VALUE);
        x = after;
        return { layer: i, error };
      });
    }),
  );
}

const size = (tensor: Tensor) => scope(() => Math.sqrt(tensor.to('float32').square().sum().item()));
