/**
 * KL(policy‖reference) along given responses, summed over the whole vocabulary at each token. It holds for responses of
 * any policy, sampled or greedy, is never negative, and has no sampling noise of its own.
 */
import { computeDealt } from '../dist/deal.ts';
import { joinWorld } from '../dist/world.ts';
import { rowsBefore } from '../models/decoder/batch.ts';
import { vocabularyLogprobs } from '../models/decoder/logprobs.ts';
import { packResponses } from '../models/decoder/responses.ts';
import type { Model } from '../models/index.ts';
import { noGrad, scope, type Tensor } from '../tensor/index.ts';
import { byTokens, type ScoreOptions, withTokens } from './batches.ts';
import type { Rollout } from './rollout.ts';

/** Number of logits per chunk. */
const chunkElements = 1 << 24;

/** Anything that can run a function on the reference's weights. */
export interface ReferenceModel {
  use<T>(body: (model: Model) => T): T;
}

/** The mean over all response tokens, in nats. Micro-batches are dealt over the ranks. */
export async function meanTokenKl(
  policy: Model,
  reference: ReferenceModel,
  rollouts: readonly Rollout[],
  { temperature, microBatchTokens }: ScoreOptions,
): Promise<number> {
  const { decoder } = policy;
  const rows = Math.max(1, Math.floor(chunkElements / decoder.spec.vocabSize));
  const longestShared = Math.min(
    decoder.longestShared,
    reference.use((model) => model.decoder.longestShared),
  );
  const sharing = { device: policy.device, longestShared };
  const measure = (part: readonly Rollout[]) => {
    let sum = 0;
    const tokens = scope(() =>
      noGrad(() => {
        const packed = packResponses(part, sharing);
        const hiddenOf = (model: Model) => rowsBefore(model.decoder.forward(packed.batch), packed.batch, packed.tokens);
        const own = hiddenOf(policy);
        const other = reference.use(hiddenOf);
        for (let start = 0; start < packed.tokens.length; start += rows) {
          const size = Math.min(rows, packed.tokens.length - start);
          const logprobs = ({ decoder }: Model, hidden: Tensor) =>
            vocabularyLogprobs(decoder, hidden.narrow(0, start, size), temperature);
          sum += scope(() => {
            const p = logprobs(policy, own);
            const q = reference.use((model) => logprobs(model, other));
            return p.exp().mul(p.sub(q)).sum().item();
          });
        }
        return packed.tokens.length;
      }),
    );
    return { sum, tokens };
  };
  const cost = (part: readonly Rollout[]) => part.reduce((sum, { ids }) => sum + ids.length, 0);
  const parts = byTokens(withTokens(rollouts), microBatchTokens, sharing);
  const measured = await computeDealt(await joinWorld(), parts, cost, measure);
  const total = (of: (each: { sum: number; tokens: number }) => number) =>
    measured.reduce((sum, each) => sum + of(each), 0);
  const tokens = total((each) => each.tokens);
  return tokens === 0 ? 0 : total((each) => each.sum) / tokens;
}
