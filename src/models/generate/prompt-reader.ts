/**
 * Reads whole prompts in one native call, for models that a decode plan supports (native/ops/decode/prompts/read.cc).
 * `prefill`, operator by operator, takes four times as long as the kernels of a short prompt on a GPU. The results
 * equal those of `prefill` to the bit; for few tokens on a GPU, which the kernels of a decoding step multiply, to
 * rounding. With an adapter it reads the merged copies of the adapter's matrices, as decoding does: then the results
 * differ from those of `prefill` by the copies' rounding.
 */
import { type Tensor, tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import { ropeDependsOnLength } from '../decoder/rope.ts';
import type { MergedWeights } from '../weights/merged-weights.ts';
import { BLOCK, type KvCache } from './cache/cache.ts';
import { HeldPlan } from './plan.ts';
import type { PromptOfRows } from './prompt-graph.ts';

export class PromptReader {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #held: HeldPlan;
  #merged: MergedWeights | null = null;

  constructor(decoder: Decoder, cache: KvCache) {
    this.#decoder = decoder;
    this.#cache = cache;
    this.#held = new HeldPlan(decoder, cache, () => ({ merged: this.#merged }));
  }

  /**
   * Reads the prompts into their slots and draws the first token of each row, in the order of the items, in the form
   * that `drawnOnHost` takes. Returns null without doing anything if native code does not support the model, the
   * prompts or the rows. `merged`: the copies of the active adapter's matrices; an adapter without them is not
   * supported.
   */
  read(items: readonly PromptOfRows[], merged: MergedWeights | null = null): Tensor | null {
    const { residence, training, spec } = this.#decoder;
    const rows = items.flatMap((item) => item.rows);
    if (training || residence?.isWhole === false || rows.length === 0 || rows.some((row) => row.needsLogits))
      return null;
    if (spec.positions.kind === 'rope' && ropeDependsOnLength(spec.positions)) return null;
    const lengths = items.map(({ prompt }) => prompt.length);
    if (merged !== this.#merged) this.#held.dispose();
    this.#merged = merged;
    const { plan } = this.#held;
    if (plan === null || lengths.includes(0) || !plan.readsPrompts(lengths)) return null;
    const tokens = this.#tokens(items);
    const rules = rulesOf(items);
    return tokens === null || rules === null ? null : plan.readPrompts({ ...tokens, lengths, rules });
  }

  /** The prompts' ids and their places in the cache, one prompt after the other; null if a number is not an int32. */
  #tokens(items: readonly PromptOfRows[]): { ids: Tensor; places: Tensor } | null {
    const total = items.reduce((sum, { prompt }) => sum + prompt.length, 0);
    const [ids, places] = [new Int32Array(total), new Int32Array(total)];
    let at = 0;
    for (const { prompt, slot } of items) {
      const blocks = this.#cache.table(slot);
      for (let token = 0; token < prompt.length; token++, at++) {
        ids[at] = prompt[token] as number;
        if (ids[at] !== prompt[token]) return null;
        places[at] = (blocks[Math.floor(token / BLOCK)] as number) * BLOCK + (token % BLOCK);
      }
    }
    return { ids: tensor(ids), places: tensor(places) };
  }

  /** Frees the plan; it is made again when it is needed. */
  dispose(): void {
    this.#held.dispose();
  }
}

/** The rule of each response for native code, [7, responses]; null if a seed is not an exact double. */
function rulesOf(items: readonly PromptOfRows[]): Tensor | null {
  const responses = items.flatMap((item, which) => item.rows.map((row) => ({ row, which })));
  const count = responses.length;
  const all = new Float64Array(7 * count);
  for (const [i, { row, which }] of responses.entries()) {
    const { topK, temperature, topP, minP } = row.rule;
    if (!Number.isSafeInteger(row.seed)) return null;
    // a token's counter is its position, so that a seed gives the same random number in any batch
    const numbers = [which, row.position + 1, topK, row.seed, temperature, topP, minP];
    for (const [part, value] of numbers.entries()) all[part * count + i] = value;
  }
  return tensor(all, { shape: [7, count] });
}
