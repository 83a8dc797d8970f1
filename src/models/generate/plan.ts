/**
 * The native path of decoding: a model's weights and cache are passed to native code once (native/ops/decode/plan.h). A
 * whole step is then one call, from the rows' last tokens to their next ones. It covers the most common block (RMS norm
 * before attention and before a gated SiLU MLP): on the CPU in f32 and bf16 for a few rows, on CUDA in bf16 and f16.
 * Quantised matrices are supported on the CPU in f32 and on CUDA in bf16, adapters through merged copies of their
 * matrices (../weights). Everything else takes the general path (decoding.ts).
 */
import type { QuantisedMatrix } from '../../nn/index.ts';
import { aten, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Projection } from '../decoder/projection.ts';
import type { ExactCopies } from '../weights/exact-copies.ts';
import type { FastWeights } from '../weights/fast-weights.ts';
import type { MergedWeights } from '../weights/merged-weights.ts';
import type { PackedWeights } from '../weights/packed-weights.ts';
import { isPlain } from '../weights/plain.ts';
import type { KvCache } from './cache/cache.ts';
import { type Drawn, type DrawnTensors, type RuleTensors, ruleArguments } from './sampling.ts';

/** Copies of a model's weights that its plan uses instead. */
export interface PlanCopies {
  /** Copies of adapted matrices. */
  merged?: MergedWeights | null;
  /** With these, products round x if that is faster. */
  fast?: FastWeights | null;
  /** Lossless copies in fewer bits, on a CPU; made only if there is a plan. `all`: those in 28 bits, too. */
  exact?: (all: boolean) => ExactCopies | null;
  /**
   * Copies in 12 bits of the matrices that CUDA kernels for few rows read. They are kept in step with their matrices
   * while the plan is used.
   */
  packed?: PackedWeights | null;
}

/** The rows of one step: the newest token of each, its position, and its slot of the cache. */
export interface StepRows {
  ids: Tensor;
  positions: Tensor;
  slots: Tensor;
}

/** Prompts laid end to end, on the CPU (native/ops/decode/prompts/read.cc). */
export interface PackedPrompts {
  ids: Tensor;
  /** The tokens' positions in the whole cache. */
  places: Tensor;
  lengths: readonly number[];
  /** The sampling rule and prompt of each response, [7, responses]. */
  rules: Tensor;
}

/**
 * How far rows advance in one call: at most `steps` steps, not past a token among the stops, and no further once time
 * is up.
 */
export interface StepLimits {
  steps: number;
  stops: readonly number[];
  milliseconds: number;
}

const abandoned = new FinalizationRegistry<number>((number) => aten('attune::decode_plan_free', number));

export class DecodePlan {
  #number: number;

  private constructor(number: number) {
    this.#number = number;
    abandoned.register(this, number, this);
  }

  /** A plan for this model, or null if native code does not support it. Valid for one `Decoder.arrangement`. */
  static of(decoder: Decoder, cache: KvCache, copies: PlanCopies = {}): DecodePlan | null {
    if (!isPlain(decoder, copies.merged ?? null)) return null;
    const { tensors, settings } = planParts(decoder, cache, copies);
    const number = aten<number>(
      'attune::decode_plan',
      ...[Object.keys(tensors), Object.values(tensors), Object.keys(settings), Object.values(settings)],
    );
    return number < 0 ? null : new DecodePlan(number);
  }

  /** Whether the plan's kernels support a step of this many rows. */
  takes(rows: number): boolean {
    return aten<boolean>('attune::decode_plan_takes', this.#number, rows);
  }

  /** Whether a step of this many rows is faster with copies of matrices in fewer bits. */
  gainsByCopies(rows: number): boolean {
    return aten<boolean>('attune::decode_plan_gains', this.#number, rows);
  }

  /** The logits, [rows, vocabulary], for rows whose logits are changed before the draw. */
  logits({ ids, positions, slots }: StepRows): Tensor {
    return aten('attune::decode_logits', this.#number, ids, positions, slots);
  }

  /** The next token of each row. */
  step({ ids, positions, slots }: StepRows, rule: RuleTensors): DrawnTensors {
    const [next, logp, kept] = aten<[Tensor, Tensor, Tensor]>(
      'attune::decode_step',
      this.#number,
      ids,
      positions,
      slots,
      ...ruleArguments(rule),
    );
    return { ids: next, logp, kept };
  }

  /**
   * The same on the CPU from lists to lists, for several consecutive steps: code that runs here between two steps would
   * have to be fetched from memory again.
   */
  stepLists(
    ids: readonly number[],
    positions: readonly number[],
    slots: Tensor,
    rule: RuleTensors,
    { steps, stops, milliseconds }: StepLimits,
  ): Drawn {
    const [next, logprobs, kept] = aten<[number[], number[], number[]]>(
      'attune::decode_step_lists',
      this.#number,
      slots,
      ...ruleArguments(rule),
      ids,
      positions,
      stops,
      steps,
      milliseconds,
    );
    return { ids: next, logprobs, kept };
  }

  /** Whether `readPrompts` takes prompts of these lengths. */
  readsPrompts(lengths: readonly number[]): boolean {
    return aten<boolean>('attune::read_prompts_takes', this.#number, lengths);
  }

  /** Reads prompts into the cache and draws the first tokens of the responses, in the form that `drawnOnHost` takes. */
  readPrompts({ ids, places, lengths, rules }: PackedPrompts): Tensor {
    return aten('attune::read_prompts', this.#number, ids, places, lengths, rules);
  }

  dispose(): void {
    if (this.#number < 0) return;
    abandoned.unregister(this);
    aten('attune::decode_plan_free', this.#number);
    this.#number = -1;
  }
}

/** The plan for a decoder's present arrangement, made on first use. */
export class HeldPlan {
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #copies: () => PlanCopies;
  #held: { plan: DecodePlan | null; arrangement: number } | null = null;

  /** `copies`: those for the decoder's present arrangement. */
  constructor(decoder: Decoder, cache: KvCache, copies: () => PlanCopies = () => ({})) {
    this.#decoder = decoder;
    this.#cache = cache;
    this.#copies = copies;
  }

  /** Null if native code does not support the model as it is now. */
  get plan(): DecodePlan | null {
    const { arrangement } = this.#decoder;
    if (this.#held?.arrangement !== arrangement) {
      this.dispose();
      this.#held = { plan: DecodePlan.of(this.#decoder, this.#cache, this.#copies()), arrangement };
    }
    return this.#held.plan;
  }

  dispose(): void {
    this.#held?.plan?.dispose();
    this.#held = null;
  }
}

/** The parts of a plan, under the names that native/ops/decode/plan.cc expects. */
export function planParts(
  decoder: Decoder,
  cache: KvCache,
  { merged, fast, exact, packed }: PlanCopies = {},
): { tensors: Record<string, Tensor>; settings: Record<string, number> } {
  const { spec, weights, layers } = decoder;
  const head = fast?.head() ?? null;
  const copies = exact?.(true) ?? null;
  const rope = spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
  const tensors: Record<string, Tensor | null | undefined> = {
    embedding: weights.embedding.weight,
    finalNorm: weights.finalNorm.weight,
    'head.weight': head === null ? decoder.headWeight : null,
    'head.packed': head === null ? packed?.copyOf(decoder.headWeight) : null,
    'head.bias': weights.head?.bias,
    tables: cache.tables,
    cos: rope?.cos,
    sin: rope?.sin,
  };
  const settings: Record<string, number> = {
    layers: layers.length,
    heads: spec.attention.heads,
    spareSlot: cache.tables.size(0) > cache.slots ? cache.slots : -1, // that of idle rows
    eps: layers[0]?.weights.attentionNorm?.eps ?? 0,
    headEps: layers[0]?.weights.qNorm?.eps ?? 0,
    finalEps: weights.finalNorm.eps,
    interleaved: spec.positions.kind === 'rope' && spec.positions.interleaved ? 1 : 0,
    fast: fast ? 1 : 0,
  };
  const addQuantised = (name: string, matrix: QuantisedMatrix) => {
    for (const [part, tensor] of fast?.tensorsOf(matrix) ?? matrix.tensors()) tensors[`${name}.${part}`] = tensor;
    const { inputs, block, parts } = matrix;
    Object.assign(settings, { [`${name}.inputs`]: inputs, [`${name}.block`]: block, [`${name}.parts`]: parts.length });
    for (const [i, rows] of parts.entries()) settings[`${name}.parts.${i}`] = rows;
  };
  const addCopy = (name: string, matrix: Tensor | null) => {
    const copy = copies?.copyOf(matrix) ?? null;
    if (copy !== null) tensors[`${name}.${copy.dtype === 'bfloat16' ? 'halves' : 'shorts'}`] = copy;
  };
  if (head !== null) addQuantised('head', head);
  else addCopy('head', decoder.headWeight);
  for (const { index, weights: own } of layers) {
    const at = `layers.${index}.`;
    const matrices: Record<string, Projection> = { qkv: own.qkv, out: own.out, up: own.up, down: own.down };
    for (const [name, matrix] of Object.entries(matrices)) {
      const { weight, quantised, bias } = matrix;
      const read = merged?.weightOf(matrix) ?? weight;
      tensors[`${at}${name}.weight`] = read;
      tensors[`${at}${name}.packed`] = packed?.copyOf(read);
      addCopy(`${at}${name}`, read);
      tensors[`${at}${name}.bias`] = bias;
      if (quantised !== null) addQuantised(`${at}${name}`, quantised);
    }
    tensors[`${at}attentionNorm`] = own.attentionNorm?.weight;
    tensors[`${at}mlpNorm`] = own.mlpNorm?.weight;
    tensors[`${at}qNorm`] = own.qNorm?.weight;
    tensors[`${at}kNorm`] = own.kNorm?.weight;
    tensors[`${at}keys`] = cache.keys[index];
    tensors[`${at}values`] = cache.values[index];
    tensors[`${at}keyScales`] = cache.keyScales[index];
    tensors[`${at}valueScales`] = cache.valueScales[index];
    settings[`${at}scale`] = decoder.attentionScale(index);
    settings[`${at}window`] = spec.attention.windows[index] ?? 0;
  }
  const there = Object.entries(tensors).filter((part): part is [string, Tensor] => part[1] != null);
  return { tensors: Object.fromEntries(there), settings };
}
