/**
 * Computes a direct-alignment loss: the reference's log-probs, KTO's z0 if the loss needs it, and the loss of each
 * micro-batch with denominators over the whole step.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type Baseline,
  type LossResult,
  MetricSums,
  type Metrics,
  mismatchedBaseline,
  mismatchedPairs,
  type PreferenceLoss,
  type PreferenceOptions,
  type PreferenceTotals,
  pairsBaseline,
  preferenceBatch,
} from '../../algorithms/index.ts';
import { exactAccuracies } from '../../algorithms/metrics.ts';
import type { Batch } from '../../data/index.ts';
import { computeDealt } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { AttuneError } from '../../errors.ts';
import {
  type MicroBatchLimits,
  microBatches,
  type PackedResponses,
  type PromptedResponse,
  packedTokens,
  packResponses,
  responseBatches,
  responseLogprobs,
  responsesOf,
  responseTokenLogprobs,
  type StartedLogprobs,
  startResponseLogprobs,
} from '../../models/decoder/responses.ts';
import type { Model } from '../../models/index.ts';
import { withoutDropout } from '../../models/index.ts';
import { noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import type { Judged } from '../loop/best.ts';
import type { BatchMetrics } from '../loop/task.ts';
import { combined } from '../loop/update.ts';
import { type ReferenceTable, referenceLogprobs } from '../reference/cache.ts';
import type { Reference } from '../reference/reference.ts';

export interface JudgedResponse extends PromptedResponse {
  chosen: boolean;
  /** Σ lpRef, once computed. */
  lpRef?: number;
}

/** An example: both responses of a pair, or a single response. */
export type PreferenceExample = readonly JudgedResponse[];

/** Metrics in training and evaluation. Some need a reference or both classes. */
export const preferenceMetrics: readonly string[] = [
  'loss',
  'accuracy',
  'margin',
  ...['chosen', 'rejected'].flatMap((side) => [`${side}_reward`, `${side}_lp`, `${side}_length`]),
  'log_ratio',
];

export const preferenceJudged: Judged = { metric: 'loss', names: preferenceMetrics };

export interface ObjectiveOptions {
  model: Model;
  algorithm: PreferenceLoss;
  options: PreferenceOptions;
  /** null if the loss needs none or all its log-probs were precomputed. */
  reference: Reference | null;
  limits: MicroBatchLimits;
  /** Limits for evaluation, which needs no memory for backward. */
  evalLimits?: MicroBatchLimits;
  /** The longest sequence. Mismatched prompts and responses (KTO's z0) are truncated to it. */
  maxLength: number;
  checkpointing?: boolean;
}

/** The reference's log-probs of a step, queued but not read yet. */
interface Unread {
  responses: readonly JudgedResponse[];
  logprobs: StartedLogprobs;
}

export class PreferenceObjective {
  readonly #options: ObjectiveOptions;
  #unread: Unread | null = null;
  /** Log-probs for the next step, started early. */
  #ahead: Unread | null = null;

  constructor(options: ObjectiveOptions) {
    this.#options = options;
  }

  dispose(): void {
    this.#unread?.logprobs.drop();
    this.#ahead?.logprobs.drop();
    this.#unread = null;
    this.#ahead = null;
  }

  /** Whether a step begins with log-probs from the policy, or from its base as the reference. */
  get scoresPolicy(): boolean {
    const { algorithm, reference, model } = this.#options;
    return algorithm.baseline !== undefined || (reference !== null && model.adapters !== null);
  }

  /** The examples of a packed batch. Two sequences per example are pairs, otherwise responses have a label each. */
  examples(batch: Batch, known?: ReferenceTable): PreferenceExample[] {
    const responses = responsesOf(batch);
    const pairs = batch.sequences === 2 * batch.examples;
    return Array.from({ length: batch.examples }, (_, i) => {
      const lpRef = known?.get(batch.exampleIndices[i] as number);
      if (!pairs) return [{ ...(responses[i] as PromptedResponse), chosen: batch.labels[i] === 1, lpRef: lpRef?.[0] }];
      const [w, l] = [responses[i], responses[batch.examples + i]] as [PromptedResponse, PromptedResponse];
      return [
        { ...w, chosen: true, lpRef: lpRef?.[0] },
        { ...l, chosen: false, lpRef: lpRef?.[1] },
      ];
    });
  }

  /** Counts the step's responses, sets their reference log-probs, and computes z0 if the loss needs it. */
  async totals(examples: readonly PreferenceExample[]): Promise<PreferenceTotals> {
    const responses = examples.flat();
    const { algorithm } = this.#options;
    if (algorithm.needsReference) await this.#fillReference(responses);
    const chosen = responses.filter((response) => response.chosen).length;
    const totals: PreferenceTotals = { chosen, rejected: responses.length - chosen };
    if (algorithm.baseline !== undefined) totals.baseline = await this.#baselines[algorithm.baseline](responses);
    return totals;
  }

  /** Starts the reference's log-probs of the next step's examples early, before `totals` needs them. For one rank. */
  startReference(examples: readonly PreferenceExample[]): void {
    this.#ahead?.logprobs.drop();
    this.#ahead = null;
    const { algorithm } = this.#options;
    if (algorithm.needsReference && algorithm.baseline === undefined) this.#ahead = this.#started(unknownOf(examples));
  }

  /** Adds a micro-batch's share of the gradient; returns its share of the metrics. */
  backward(examples: readonly PreferenceExample[], totals: PreferenceTotals): BatchMetrics {
    const { model, checkpointing } = this.#options;
    const responses = examples.flat();
    const packed = packResponses(responses, model.decoder);
    let metrics: Metrics = {};
    const loss = model.decoder.backward(
      packed.batch,
      (hidden) => {
        const made = this.#loss(hidden, packed, responses, totals);
        metrics = made.metrics;
        return made.loss;
      },
      { checkpointing },
    );
    return { ...metrics, loss };
  }

  /** The metrics of `backward` without gradient, over all examples as one step. */
  async evaluate(examples: readonly PreferenceExample[]): Promise<Record<string, number>> {
    const { model, limits, evalLimits = limits } = this.#options;
    const totals = await this.totals(examples);
    const tokensOf = (example: PreferenceExample) => packedTokens(example, model.decoder);
    const parts = microBatches(examples, evalLimits, tokensOf);
    const measure = async (part: readonly PreferenceExample[]) => {
      const sums = new MetricSums();
      scope(() => noGrad(() => sums.add(this.#lossOf(part, totals).metrics)));
      await nextTurn();
      return sums.read();
    };
    const cost = (part: readonly PreferenceExample[]) => part.reduce((sum, example) => sum + tokensOf(example), 0);
    const world = await joinWorld();
    const shares = await withoutDropout(model.decoder, () => computeDealt(world, parts, cost, measure));
    return exactAccuracies(combined(shares), this.decisions(totals));
  }

  /** The number of decisions behind the accuracy: pairs, or single responses. */
  decisions({ chosen, rejected }: PreferenceTotals): number {
    return this.#options.algorithm.paired ? chosen : chosen + rejected;
  }

  #lossOf(examples: readonly PreferenceExample[], totals: PreferenceTotals): LossResult {
    const { model } = this.#options;
    const responses = examples.flat();
    const packed = packResponses(responses, model.decoder);
    return this.#loss(model.decoder.forward(packed.batch), packed, responses, totals);
  }

  #loss(
    hidden: Tensor,
    packed: PackedResponses,
    responses: readonly JudgedResponse[],
    totals: PreferenceTotals,
  ): LossResult {
    const { model, algorithm, options } = this.#options;
    const places = (chosen: boolean) => responses.flatMap((response, i) => (response.chosen === chosen ? [i] : []));
    const [chosen, rejected] = [places(true), places(false)];
    const lp = responseTokenLogprobs(model.decoder, hidden, packed);
    const batch = preferenceBatch({ lp, lengths: packed.lengths, chosen, rejected });
    if (algorithm.needsReference) {
      this.#readReference();
      const sums = (side: number[]) =>
        tensor(
          Float64Array.from(side, (i) => responses[i]?.lpRef as number),
          { dtype: lp.dtype, device: lp.device },
        );
      batch.chosen.lpRef = sums(chosen);
      batch.rejected.lpRef = sums(rejected);
    }
    return algorithm.loss(batch, options, totals);
  }

  /** Sets lpRef. If only the loss needs it, the computation is started and read there. */
  async #fillReference(responses: readonly JudgedResponse[]): Promise<void> {
    const { algorithm } = this.#options;
    const unknown = unknownOf([responses]);
    this.#unread?.logprobs.drop();
    this.#unread = null;
    if (unknown.length === 0) return;
    if (algorithm.baseline === undefined && (await joinWorld()).size === 1) {
      this.#unread = this.#takeAhead(unknown) ?? this.#started(unknown);
      if (this.#unread !== null) return;
    }
    const sums = await this.#reference(unknown);
    for (const [i, response] of unknown.entries()) response.lpRef = sums[i];
  }

  #started(responses: readonly JudgedResponse[]): Unread | null {
    const { reference, limits } = this.#options;
    if (reference === null || responses.length === 0) return null;
    const start = ({ decoder }: Model) => startResponseLogprobs(decoder, responses, responseLimits(limits));
    return { responses, logprobs: reference.use(start) };
  }

  /**
   * The log-probs started for exactly these responses, if any. Those of other responses stay: an evaluation may come in
   * between.
   */
  #takeAhead(responses: readonly JudgedResponse[]): Unread | null {
    const ahead = this.#ahead;
    if (ahead?.responses.length !== responses.length) return null;
    if (!ahead.responses.every((response, i) => response === responses[i])) return null;
    this.#ahead = null;
    return ahead;
  }

  #readReference(): void {
    if (this.#unread === null) return;
    const { responses, logprobs } = this.#unread;
    this.#unread = null;
    for (const [i, sum] of logprobs.read().entries()) (responses[i] as JudgedResponse).lpRef = sum;
  }

  readonly #baselines: Record<
    NonNullable<PreferenceLoss['baseline']>,
    (responses: readonly JudgedResponse[]) => Promise<Baseline>
  > = {
    mismatched: async (responses) => {
      const mismatched = mismatchedResponses(responses, this.#options.maxLength);
      const reference = mismatched.length === 0 ? [] : await this.#reference(mismatched);
      const policy = await this.#policy(mismatched);
      return mismatchedBaseline(policy.map((lp, i) => lp - (reference[i] as number)));
    },
    pairs: async (responses) => {
      const policy = await this.#policy(responses);
      const drift = policy.map((lp, i) => lp - (responses[i]?.lpRef as number));
      const side = (chosen: boolean) => drift.filter((_, i) => responses[i]?.chosen === chosen);
      return pairsBaseline(side(true), side(false));
    },
  };

  #policy(responses: readonly PromptedResponse[]): Promise<number[]> {
    const { model, limits } = this.#options;
    return this.#dealt(responses, (part) => responseLogprobs(model.decoder, part, responseLimits(limits)));
  }

  #reference(responses: readonly PromptedResponse[]): Promise<number[]> {
    const { reference, algorithm, limits } = this.#options;
    if (reference === null) throw new AttuneError(`${algorithm.name} needs a reference and was given none.`);
    return this.#dealt(responses, (part) => referenceLogprobs(reference, part, responseLimits(limits)));
  }

  /** Computes numbers per response in micro-batches that are dealt over the ranks. */
  async #dealt(
    responses: readonly PromptedResponse[],
    compute: (part: readonly PromptedResponse[]) => number[],
  ): Promise<number[]> {
    const { model, limits } = this.#options;
    const parts = responseBatches(responses, responseLimits(limits), model.decoder);
    const cost = (part: readonly PromptedResponse[]) => part.reduce((sum, { ids }) => sum + ids.length, 0);
    return (await computeDealt(await joinWorld(), parts, cost, compute)).flat();
  }
}

const unknownOf = (examples: readonly PreferenceExample[]): JudgedResponse[] =>
  examples.flat().filter((response) => response.lpRef === undefined);

/** Limits count examples, and an example may have two responses. */
export const responseLimits = ({ examples, tokens }: MicroBatchLimits): MicroBatchLimits => ({
  examples: examples === undefined ? undefined : 2 * examples,
  tokens,
});

/** Each prompt with the next response to a different prompt. */
function mismatchedResponses(responses: readonly PromptedResponse[], maxLength: number): PromptedResponse[] {
  const prompts = responses.map(({ ids, promptLength }) => ids.subarray(0, promptLength).join());
  return mismatchedPairs(prompts).map(([p, r]) => {
    const { ids: promptIds, promptLength } = responses[p] as PromptedResponse;
    const { ids, promptLength: start } = responses[r] as PromptedResponse;
    const room = Math.max(0, maxLength - promptLength);
    const response = ids.subarray(start, start + room);
    const whole = new Int32Array(promptLength + response.length);
    whole.set(promptIds.subarray(0, promptLength));
    whole.set(response, promptLength);
    return { ids: whole, promptLength };
  });
}
