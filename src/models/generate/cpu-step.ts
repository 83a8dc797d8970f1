/**
 * A decoding step on the CPU as one native call (native/ops/decode_step.cc), where the whole model is what that call knows. Its
 * arguments are held from step to step: only ids and positions are new each time.
 */
import { BoundOperator, empty, scope } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache.ts';
import { layerArguments, layersFit } from './decode-layer.ts';
import type { Reply } from './request.ts';
import type { HeldRows } from './row-tensors.ts';
import type { Drawn } from './sampling.ts';

interface Held {
  rows: HeldRows;
  arrangement: number;
  /** Wants ids and positions; null where the step goes the general way. */
  step: BoundOperator | null;
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
    const { arrangement } = this.#decoder;
    if (this.#held?.rows !== rows || this.#held.arrangement !== arrangement) {
      this.dispose();
      const step = stepFits(this.#decoder, active) ? bindStep(this.#decoder, this.#cache, rows) : null;
      this.#held = { rows, arrangement, step };
    }
    if (this.#held.step === null) return null;
    const [ids, logprobs] = this.#held.step.call<[number[], number[]]>(
      active.map((reply) => reply.last),
      active.map((reply) => reply.position),
    );
    return { ids, logprobs };
  }

  dispose(): void {
    this.#held?.step?.dispose();
    this.#held = null;
  }
  [Symbol.dispose](): void {
    this.dispose();
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

function bindStep(decoder: Decoder, cache: KvCache, { rule, slots }: HeldRows): BoundOperator {
  const { embedding, finalNorm, head } = decoder.weights;
  const { before, after } = layerArguments(decoder.layers, decoder, cache);
  return new BoundOperator(
    'attune::decode_step',
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
  );
}
