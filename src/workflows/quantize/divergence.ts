/** KL(original‖quantised) per token, on responses of the original. */
import { vocabularyLogprobs } from '../../models/decoder/logprobs.ts';
import { type Model, type PromptedResponse, packSequences, scoredTokens } from '../../models/index.ts';
import { noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';

/** The divergence at each token of one response. */
export interface TokenDivergence {
  /** log p of the token, by the original and by the quantised model. */
  original: Float32Array;
  quantised: Float32Array;
  /** Σ p (log p − log q) over the vocabulary, at the token's position. */
  kl: Float32Array;
  sameTop: number;
}

/** The most logits in memory at once. */
const CHUNK = 2 ** 24;

/** The final hidden states that predict the response tokens. `tokens` are the positions of those tokens. */
export function predictingRows(
  model: Model,
  responses: readonly PromptedResponse[],
): { rows: Tensor; targets: Tensor } {
  const batch = packSequences(
    responses.map(({ ids }) => ids),
    model.device,
  );
  const mask = responses.flatMap(({ ids, promptLength }) => Array.from(ids, (_, i) => (i >= promptLength ? 1 : 0)));
  const places = scoredTokens(batch.starts, mask);
  const at = (offset: number) =>
    tensor(
      BigInt64Array.from(places, (place) => BigInt(place + offset)),
      { device: model.device },
    );
  return {
    rows: model.decoder.forward(batch).indexSelect(0, at(-1)),
    targets: batch.ids.indexSelect(0, at(0)).to('int64'),
  };
}

/** Compares both models' hidden states for the same responses, at a temperature. */
export function divergences(
  [original, quantised]: readonly [Model, Model],
  [rows, others]: readonly [Tensor, Tensor],
  targets: Tensor,
  lengths: readonly number[],
  temperature: number,
): TokenDivergence[] {
  const count = rows.size(0);
  const step = Math.max(1, Math.floor(CHUNK / original.decoder.spec.vocabSize));
  const found = { original: [], quantised: [], kl: [], same: [] } as Record<
    'original' | 'quantised' | 'kl' | 'same',
    number[]
  >;
  for (let start = 0; start < count; start += step) {
    const size = Math.min(step, count - start);
    scope(() =>
      noGrad(() => {
        const logprobs = ({ decoder }: Model, hidden: Tensor) =>
          vocabularyLogprobs(decoder, hidden.narrow(0, start, size), temperature);
        const p = logprobs(original, rows);
        const q = logprobs(quantised, others);
        const picked = targets.narrow(0, start, size).unsqueeze(1);
        found.original.push(...p.gather(1, picked).squeeze(1).numbers());
        found.quantised.push(...q.gather(1, picked).squeeze(1).numbers());
        found.kl.push(...p.exp().mul(p.sub(q)).sum([-1]).numbers());
        found.same.push(...p.argmax(-1).eq(q.argmax(-1)).to('float32').numbers());
      }),
    );
  }
  let at = 0;
  return lengths.map((length) => {
    const cut = (values: number[]) => values.slice(at, at + length);
    const own = {
      original: Float32Array.from(cut(found.original)),
      quantised: Float32Array.from(cut(found.quantised)),
      kl: Float32Array.from(cut(found.kl)),
      sameTop: cut(found.same).reduce((sum, value) => sum + value, 0),
    };
    at += length;
    return own;
  });
}

/**
 * A mean per token and its standard error. Tokens of one response are not independent, so it is the error of a ratio of
 * sums over responses.
 */
export function meanPerToken(responses: readonly ArrayLike<number>[]): { mean: number; error: number } {
  const sums = responses.map((values) => Array.from(values).reduce((sum, value) => sum + value, 0));
  const tokens = responses.reduce((sum, values) => sum + values.length, 0);
  const mean = sums.reduce((sum, value) => sum + value, 0) / tokens;
  const n = responses.length;
  const squares = sums.reduce((sum, value, i) => sum + (value - mean * (responses[i]?.length ?? 0)) ** 2, 0);
  return { mean, error: n > 1 ? Math.sqrt((squares * n) / (n - 1)) / tokens : Number.NaN };
}
