/** How a next token is drawn from logits, and the rule's parameters as tensors. */
import { UserError } from '../../errors.ts';
import { aten, type Device, type Tensor, tensor } from '../../tensor/index.ts';

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
  /** Above 1 makes tokens that are already there less likely (Keskar et al. 2019). */
  repetitionPenalty?: number;
  /** Token ids that end a reply; the one met is the reply's last. */
  stopIds?: readonly number[];
  /** Strings that end a reply; needs the sampler's tokenizer. */
  stopStrings?: readonly string[];
  /** The reply depends on this and on nothing else in the batch. */
  seed?: number;
}

export interface Rule {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
}

/** The options with their defaults, checked: all faults are of the caller's making. */
export function ruleOf(options: SamplingOptions): Rule {
  const { temperature = 1, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, maxNewTokens } = options;
  const faults: string[] = [];
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1)
    faults.push(`max new tokens ${maxNewTokens}: expected 1 or more`);
  if (!(temperature >= 0)) faults.push(`temperature ${temperature}: expected 0 (greedy) or more`);
  if (!Number.isInteger(topK) || topK < 0) faults.push(`top-k ${topK}: expected a whole number, 0 for all`);
  if (!(topP > 0 && topP <= 1)) faults.push(`top-p ${topP}: expected above 0, at most 1`);
  if (!(minP >= 0 && minP <= 1)) faults.push(`min-p ${minP}: expected 0 to 1`);
  if (!(repetitionPenalty > 0)) faults.push(`repetition penalty ${repetitionPenalty}: expected above 0`);
  if (faults.length > 0) throw new UserError(`Sampling is not possible with ${faults.join('; ')}.`);
  return { temperature, topK, topP, minP, repetitionPenalty };
}

/** One entry per row, on the device. */
export interface RuleTensors {
  temperature: Tensor;
  topK: Tensor;
  topP: Tensor;
  minP: Tensor;
  seeds: Tensor;
}

export function ruleTensors(rules: readonly Rule[], seeds: readonly number[], device: Device): RuleTensors {
  const floats = (pick: (rule: Rule) => number) => tensor(Float32Array.from(rules, pick), { device });
  const whole = (values: Iterable<number>) =>
    tensor(
      BigInt64Array.from(values, (value) => BigInt(value)),
      { device },
    );
  return {
    temperature: floats((rule) => rule.temperature),
    topK: whole(rules.map((rule) => rule.topK)),
    topP: floats((rule) => rule.topP),
    minP: floats((rule) => rule.minP),
    seeds: whole(seeds),
  };
}

/** One token per row. */
export interface Drawn {
  ids: number[];
  logprobs: number[];
}

/** The next token of each row and its log-probability over the whole vocabulary at the temperature (native/ops/sample.cc). */
export function sampleNext(logits: Tensor, rule: RuleTensors, counters: Tensor): { ids: Tensor; logp: Tensor } {
  const [ids, logp] = aten<[Tensor, Tensor]>(
    'attune::sample',
    logits,
    rule.temperature,
    rule.topK,
    rule.topP,
    rule.minP,
    rule.seeds,
    counters,
  );
  return { ids, logp };
}

/** Divides positive and multiplies negative logits of the tokens that are already there, in place on one row. */
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
