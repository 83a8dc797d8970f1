/** How the next token is drawn from logits: the options, and the same as tensors for native code. */
import { UserError } from '../../errors.ts';
import { aten, type Device, scope, type Tensor, tensor } from '../../tensor/index.ts';

/** How tokens are drawn, and when a response ends. */
export interface SamplingOptions {
  maxNewTokens: number;
  /** 0 is greedy. */
  temperature?: number;
  /** Only the k likeliest; 0 = all. */
  topK?: number;
  /** The fewest tokens that hold this much probability; 1 = all. */
  topP?: number;
  /** Only tokens with at least this share of the likeliest one's probability; 0 = all. */
  minP?: number;
  /** Above 1 makes tokens that the text already holds less likely (Keskar et al. 2019). */
  repetitionPenalty?: number;
  /** Token ids that end a response; the one that does is the response's last token. */
  stopIds?: readonly number[];
  /** Strings that end a response; needs the sampler's tokenizer. */
  stopStrings?: readonly string[];
  /** The response depends on this and the prompt, and on nothing else in the batch (on CUDA to rounding). */
  seed?: number;
  /** Reports the n likeliest tokens at each position, among those that `allow` permits. */
  topLogprobs?: number;
  /** Reports log-probs under the truncated, renormalised distribution too. */
  truncatedLogprobs?: boolean;
  /**
   * The token ids that may follow the response so far, `ids` (constrained decoding). Log-probs are then over those
   * tokens only.
   */
  allow?: (ids: readonly number[], sample: number) => Iterable<number>;
}

/** A token with its log-probability. */
export interface TokenLogprob {
  id: number;
  logprob: number;
}

export interface Rule {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
}

/** The options with their defaults, checked. */
export function ruleOf(options: SamplingOptions): Rule {
  const { temperature = 1, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, maxNewTokens } = options;
  const faults: string[] = [];
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1)
    faults.push(`max new tokens ${maxNewTokens}: expected a whole number, 1 or more`);
  if (!(temperature >= 0)) faults.push(`temperature ${temperature}: expected 0 (greedy) or more`);
  if (!Number.isInteger(topK) || topK < 0) faults.push(`top-k ${topK}: expected a whole number, 0 for all`);
  if (!(topP > 0 && topP <= 1)) faults.push(`top-p ${topP}: expected above 0, at most 1`);
  if (!(minP >= 0 && minP <= 1)) faults.push(`min-p ${minP}: expected 0 to 1`);
  const { topLogprobs = 0 } = options;
  if (!Number.isInteger(topLogprobs) || topLogprobs < 0)
    faults.push(`top log-probs ${topLogprobs}: expected a whole number, 0 for none`);
  if (!(repetitionPenalty > 0)) faults.push(`repetition penalty ${repetitionPenalty}: expected above 0`);
  if (faults.length > 0) throw new UserError(`Sampling is not possible with ${faults.join('; ')}.`);
  return { temperature, topK, topP, minP, repetitionPenalty };
}

/** The sampling rule of each row, one entry per row, on the device. */
export interface RuleTensors {
  temperature: Tensor;
  topK: Tensor;
  topP: Tensor;
  minP: Tensor;
  seeds: Tensor;
}

export function ruleTensors(rules: readonly Rule[], seeds: readonly number[], device: Device): RuleTensors {
  return scope(() => {
    // two uploads instead of five
    const count = rules.length;
    const whole = BigInt64Array.from([...rules.map((rule) => rule.topK), ...seeds], BigInt);
    const fractions = Float32Array.from([
      ...rules.map((rule) => rule.temperature),
      ...rules.map((rule) => rule.topP),
      ...rules.map((rule) => rule.minP),
    ]);
    const numbers = tensor(whole, { shape: [2, count], device });
    const shares = tensor(fractions, { shape: [3, count], device });
    return {
      temperature: shares.select(0, 0),
      topK: numbers.select(0, 0),
      topP: shares.select(0, 1),
      minP: shares.select(0, 2),
      seeds: numbers.select(0, 1),
    };
  });
}

/** The rule in the order in which the native operators take it. */
export const ruleArguments = ({ temperature, topK, topP, minP, seeds }: RuleTensors): Tensor[] => [
  temperature,
  topK,
  topP,
  minP,
  seeds,
];

/**
 * One token per row (native/ops/decode/sample.cc): its id, its log-probability over the whole vocabulary at the temperature, and the
 * share of the probability mass that top-k, top-p and min-p left.
 */
export interface DrawnTensors {
  ids: Tensor;
  logp: Tensor;
  kept: Tensor;
}

/** `DrawnTensors` on the host. */
export interface Drawn {
  ids: number[];
  logprobs: number[];
  kept: number[];
  /** The likeliest tokens, for rows that ask for them. */
  top?: (TokenLogprob[] | undefined)[];
}

export const onHost = ({ ids, logp, kept }: DrawnTensors): Drawn => ({
  ids: ids.numbers(),
  logprobs: logp.numbers(),
  kept: kept.numbers(),
});

/** Draws the next token of each row. A row's counter is the position of the new token. */
export function sampleNext(logits: Tensor, rule: RuleTensors, counters: Tensor): DrawnTensors {
  const [ids, logp, kept] = aten<[Tensor, Tensor, Tensor]>('attune::sample', logits, ...ruleArguments(rule), counters);
  return { ids, logp, kept };
}

/** The same in one tensor, which the host reads in one copy (`drawnOnHost`). */
export function sampleTogether(logits: Tensor, rule: RuleTensors, counters: Tensor): Tensor {
  return aten('attune::sample_together', logits, ...ruleArguments(rule), counters);
}

/** Rows that advance by themselves, one entry per row. */
export interface GoingRows {
  /** The newest token of each. */
  ids: Tensor;
  positions: Tensor;
  /** The last position of each: a row that reaches it becomes idle. */
  limits: Tensor;
  slots: Tensor;
  /** The place of a row's next token among the tokens of the last steps. */
  turns: Tensor;
  /** The slot of idle rows. */
  idleSlot: number;
}

/**
 * Draws the next token of each row, stores it in `out` [turns, rows or more] and advances the rows
 * (native/ops/decode/advance.cc).
 */
export function sampleAndAdvance(logits: Tensor, rule: RuleTensors, rows: GoingRows, out: DrawnTensors): void {
  const { ids, positions, limits, slots, turns, idleSlot } = rows;
  const state = [ids, positions, limits, slots, turns, idleSlot];
  aten('attune::sample_advance_', logits, ...ruleArguments(rule), ...state, out.ids, out.logp, out.kept);
}

/**
 * Applies a repetition penalty to one row of logits, in place: the logits of `seen` tokens are divided by it if
 * positive, else multiplied.
 */
export function penalise(logits: Tensor, seen: Iterable<number>, penalty: number): void {
  const at = tensor(
    BigInt64Array.from(seen, (id) => BigInt(id)),
    { device: logits.device },
  );
  const before = logits.indexSelect(0, at);
  const positive = before.gt(0).to(before.dtype);
  const factor = positive.mul(1 / penalty - penalty).add(penalty);
  logits.indexCopy_(0, at, before.mul(factor));
}

/** Sets the logits of all but the allowed tokens to −∞, in place. */
export function restrict(logits: Tensor, allowed: Iterable<number>): void {
  const size = logits.numel;
  const mask = new Float32Array(size).fill(Number.NEGATIVE_INFINITY);
  let any = false;
  for (const id of allowed) {
    if (!(Number.isInteger(id) && id >= 0 && id < size))
      throw new UserError(`allow: token ${id} is not among the model's ${size}.`);
    mask[id] = 0;
    any = true;
  }
  if (!any) throw new UserError('allow: no token is allowed next, so that the response cannot go on.');
  logits.add_(tensor(mask, { device: logits.device }));
}

/**
 * The `count` likeliest tokens of a row of logits with their log-probs at a temperature (1 for greedy), best first.
 * Fewer if fewer are possible: an impossible one has a log-prob of −∞, which JSON writes as null.
 */
export function likeliest(logits: Tensor, temperature: number, count: number): TokenLogprob[] {
  const scaled = temperature > 0 ? logits.mul(1 / temperature) : logits;
  const [values, ids] = aten<[Tensor, Tensor]>('topk', scaled.logSoftmax(-1), Math.min(count, logits.numel), -1);
  const logprobs = values.numbers();
  return ids
    .numbers()
    .map((id, i) => ({ id, logprob: logprobs[i] as number }))
    .filter(({ logprob }) => logprob !== Number.NEGATIVE_INFINITY);
}
