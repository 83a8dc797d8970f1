/**
 * A decoding step on the CPU as one native call (native/decode_step.cc), where the whole model is what that call knows. Its
 * arguments are held from step to step: only ids and positions are new each time.
 */
import { aten, empty, scope, type Tensor } from '../tensor/index.ts';
import { layerArguments, layersFit } from './decode-layer.ts';
import type { Decoder } from './decoder.ts';
import type { Reply } from './generation.ts';
import type { KvCache } from './kv-cache.ts';
import type { HeldRows } from './row-tensors.ts';
import type { Drawn } from './sampling.ts';

interface Held {
  rows: HeldRows;
  arrangement: number;
  /** The decoder frees this one when a longer sequence comes along, here or elsewhere. */
  cosines: Tensor | null;
  /** All arguments but ids and positions; null where the step goes the general way. */
  args: unknown[] | null;
}

export class CpuStep {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  #held: Held | null = null;

  constructor(decoder: Decoder, cache: KvCache) {
    this.#decoder = decoder;
    this.#cache = cache;
  }

  /** The next token of each reply, or null where the step goes the general way. `rows` are of these replies. */
  run(active: readonly Reply[], rows: HeldRows): Drawn | null {
    if (this.#held === null || this.#isStale(this.#held, rows)) this.#held = this.#hold(active, rows);
    if (this.#held.args === null) return null;
    const [ids, logprobs] = aten<[number[], number[]]>(
      'attune::decode_step',
      ...this.#held.args,
      active.map((reply) => reply.last),
      active.map((reply) => reply.position),
    );
    return { ids, logprobs };
  }

  #isStale(held: Held, rows: HeldRows): boolean {
    return held.rows !== rows || held.arrangement !== this.#decoder.arrangement || held.cosines?.isFreed === true;
  }

  #hold(active: readonly Reply[], rows: HeldRows): Held {
    const { arrangement, spec } = this.#decoder;
    const args = stepFits(this.#decoder, active) ? stepArguments(this.#decoder, this.#cache, rows) : null;
    const rope = args !== null && spec.positions.kind === 'rope' ? this.#decoder.ropeUpTo(this.#cache.length) : null;
    return { rows, arrangement, cosines: rope?.cos ?? null, args };
  }
}

/** Whether one call does all that a step of these replies is. */
function stepFits(decoder: Decoder, active: readonly Reply[]): boolean {
  const { device, dtype, spec, weights } = decoder;
  if (device !== 'cpu' || dtype !== 'float32') return false;
  if (weights.positions !== null || weights.embeddingNorm !== null || weights.finalNorm.kind !== 'rms') return false;
  if (active.some((reply) => reply.rule.repetitionPenalty !== 1)) return false;
  return scope(() => layersFit(decoder, empty([active.length, spec.hiddenSize], { dtype, device })));
}

function stepArguments(decoder: Decoder, cache: KvCache, { rule, slots }: HeldRows): unknown[] {
  const { embedding, finalNorm, head } = decoder.weights;
  const { before, after } = layerArguments(decoder.layers, decoder, cache);
  return [
    embedding.weight,
    ...before,
    slots,
    ...after,
    finalNorm.weight,
    finalNorm.eps,
    decoder.headWeight,
    head?.bias ?? null,
    rule.temperature,
    rule.topK,
    rule.topP,
    rule.minP,
    rule.seeds,
  ];
}
