/**
 * Policy optimisation as a task of the shared loop, for every algorithm: prompts → rollouts → rewards → advantages →
 * losses → step. What differs between algorithms is in their data (src/algorithms/policy); nothing here knows a name.
 *
 * Between sampling and the losses everything lies on the host, so that a step's rollouts take no device memory and can be
 * gone through several times (`ppoEpochs`, `nMinibatches`) in micro-batches of a token budget.
 */
import {
  adaptedKlCoef,
  informative,
  type Metrics,
  type PolicyAlgorithm,
  type PolicyOptions,
  policyAdvantages,
  type StepTotals,
  segmentsOf,
  stepTotals,
} from '../../algorithms/index.ts';
import { packResponses } from '../../models/decoder/responses.ts';
import { type Model, tokenLogprobs } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { byTokens, minibatches, packedTensor, scoreLogprobs } from '../../rollouts/batches.ts';
import { rolloutMetrics } from '../../rollouts/metrics.ts';
import type { PolicyPrompt, PromptSource } from '../../rollouts/prompts.ts';
import { storedRollouts } from '../../rollouts/records.ts';
import { type Rollout, type RolloutSampler, sampleRollouts } from '../../rollouts/rollout.ts';
import { RewardShaper, scoreRollouts } from '../../rollouts/scoring.ts';
import type { RolloutStore } from '../../runs/index.ts';
import { keep, noGrad, type Tensor } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { Sums } from '../loop/sums.ts';
import type { Optimizer, StepPlan, TrainTask, Update } from '../loop/task.ts';
import { restoreForTraining, saveForTraining } from '../setup.ts';
import type { PolicyConfig } from './config.ts';
import type { Critic } from './critic.ts';
import { checkSamplerGap } from './sampler-gap.ts';

export interface PolicyParts {
  config: PolicyConfig;
  algorithm: PolicyAlgorithm;
  options: PolicyOptions;
  model: Model;
  tokenizer: Tokenizer;
  sampler: RolloutSampler;
  /** Runs a function on the reference's weights; null where the algorithm needs none. */
  reference: (<T>(body: (model: Model) => T) => T) | null;
  critic: Critic | null;
  prompts: PromptSource;
  scorer: RewardScorer;
  optimizer: Optimizer;
  totalSteps: number;
  evaluate?: (step: number) => Promise<Record<string, number>>;
  store?: RolloutStore;
}

interface PolicyState {
  prompts: unknown;
  rewards: unknown;
  klCoef: number;
}

type MicroBatch = Rollout[];

export class PolicyTask implements TrainTask<MicroBatch, StepTotals> {
  readonly optimizer: Optimizer;
  readonly totalSteps: number;
  readonly evaluate: TrainTask<MicroBatch, StepTotals>['evaluate'];
  readonly #parts: PolicyParts;
  readonly #shaper: RewardShaper;
  #klCoef: number;
  /** Where the update under way stands, for `backward` and `afterUpdate`. */
  #update = { first: true, step: 0, oldKl: 0 };
  #ratioMaxima: Tensor[] = [];
  #gap = { max: 0 };

  constructor(parts: PolicyParts) {
    const { config, options } = parts;
    this.#parts = parts;
    this.optimizer = parts.optimizer;
    this.totalSteps = parts.totalSteps;
    this.evaluate = parts.evaluate;
    this.#klCoef = options.klCoef;
    this.#shaper = new RewardShaper({
      normalization: config.rewardNormalization,
      eosPenalty: config.eosPenalty,
      overlongRamp: options.overlongRamp,
      maxNewTokens: config.maxNewTokens,
    });
  }

  async plan(step: number, signal?: AbortSignal): Promise<StepPlan<MicroBatch, StepTotals>> {
    const { prompts, store, config } = this.#parts;
    const started = performance.now();
    const { sampled, trained, asked, seconds } = await this.#rollouts(step, signal).catch((error: unknown) => {
      // A signal may be aborted with any reason; the loop knows an interrupt by its name.
      throw signal?.aborted ? new DOMException('interrupted', 'AbortError') : error;
    });
    this.#look(trained);
    this.#weigh(trained);
    const epoch = prompts.epoch;
    await store?.add(storedRollouts(sampled, { step, epoch, tokens: config.saveTokens }));
    const metrics: Record<string, number> = {
      ...rolloutMetrics(sampled, trained),
      ...prompts.metrics?.(),
      ...this.#adaptKl(trained),
      rollout_seconds: seconds,
      rollout_tokens_per_second: sampled.reduce((sum, { completionIds }) => sum + completionIds.length, 0) / seconds,
      prepare_seconds: (performance.now() - started) / 1000 - seconds,
    };
    return { updates: this.#updates(trained, step, metrics), examples: asked, epoch, metrics };
  }

  /** Prompts, responses and their rewards; in several rounds where groups that teach nothing are dropped. */
  async #rollouts(step: number, signal?: AbortSignal) {
    const { config, options, prompts, sampler, tokenizer, scorer } = this.#parts;
    const wanted = config.batchSize * config.gradAccum;
    const sampled: Rollout[] = [];
    let trained: Rollout[] = [];
    let asked = 0;
    let seconds = 0;
    for (let round = 0; round < (options.dropEqualGroups ? config.maxSamplingRounds : 1); round++) {
      const missing = wanted - trained.length / config.groupSize;
      if (missing <= 0) break;
      const batch = prompts.take(missing);
      const key = [step, round];
      const started = performance.now();
      const rollouts = await sampleRollouts(sampler, tokenizer, batch, { ...config, key }, signal);
      seconds += (performance.now() - started) / 1000;
      await scoreRollouts(scorer, rollouts, signal);
      signal?.throwIfAborted();
      this.#shaper.shape(rollouts);
      for (const rollout of rollouts) rollout.group += asked;
      asked += batch.length;
      learnFrom(prompts, batch, rollouts);
      sampled.push(...rollouts);
      trained.push(...rollouts);
      if (options.dropEqualGroups) trained = worthTraining(trained);
    }
    return { sampled, trained, asked, seconds };
  }

  /** What the reference, the critic and the trainer itself say of the responses before anything changes. */
  #look(rollouts: Rollout[]): void {
    const { config, options, model, critic, reference } = this.#parts;
    const seen = reference?.((frozen) => scoreLogprobs(frozen, null, rollouts, config));
    const severalUpdates = options.ppoEpochs * config.nMinibatches > 1;
    const recompute = config.oldLogprobs === 'trainer' && severalUpdates;
    const own = critic !== null || recompute ? scoreLogprobs(model, critic, rollouts, config) : undefined;
    for (const [i, rollout] of rollouts.entries()) {
      if (seen !== undefined) rollout.lpRef = seen.logprobs[i];
      if (own?.values !== undefined) rollout.values = own.values[i];
      if (own !== undefined && recompute) rollout.lpTrainer = own.logprobs[i];
    }
  }

  #weigh(rollouts: Rollout[]): void {
    const { algorithm } = this.#parts;
    weighRollouts(algorithm, this.#options(), rollouts);
  }

  #adaptKl(rollouts: readonly Rollout[]): Record<string, number> {
    const { options, config } = this.#parts;
    const used = this.#klCoef;
    if (rollouts.length === 0 || rollouts[0]?.lpRef === undefined) return used === 0 ? {} : { kl_coef: used };
    const total = rollouts.reduce((sum, rollout) => sum + k1Of(rollout).reduce((a, b) => a + b, 0), 0);
    const kl = total / rollouts.length;
    if (options.adaptiveKl) this.#klCoef = adaptedKlCoef(used, kl, config.klTarget);
    return { kl_coef: used, response_kl: kl };
  }

  async *#updates(
    rollouts: Rollout[],
    step: number,
    metrics: Record<string, number>,
  ): AsyncGenerator<Update<MicroBatch, StepTotals>> {
    const { config, options, model } = this.#parts;
    const started = performance.now();
    let tokens = 0;
    let updates = 0;
    this.#drop();
    if (rollouts.length > 0) {
      passes: for (let pass = 0; pass < options.ppoEpochs; pass++) {
        for (const part of minibatches(rollouts, config.nMinibatches, [config.seed, step, pass])) {
          this.#update = { first: updates === 0, step, oldKl: 0 };
          this.#gap.max = 0;
          const lengths = part.map(({ completionIds }) => completionIds.length);
          yield {
            batches: byTokens(part, config.microBatchTokens, model.decoder),
            totals: stepTotals(lengths, config.maxNewTokens),
          };
          updates++;
          tokens += part.reduce((sum, { ids }) => sum + ids.length, 0);
          if (options.targetKl > 0 && this.#update.oldKl > options.targetKl) break passes;
        }
      }
    }
    const seconds = (performance.now() - started) / 1000;
    Object.assign(metrics, { updates, train_seconds: seconds, train_tokens_per_second: tokens / seconds });
  }

  backward(rollouts: MicroBatch, totals: StepTotals): Sums & { loss: Sums[string] } {
    const { algorithm, config, critic, model } = this.#parts;
    const { decoder } = model;
    const packed = packResponses(rollouts, decoder);
    let metrics: Metrics = {};
    let gap: Record<string, number> = {};
    const loss = decoder.backward(
      packed.batch,
      (hidden) => {
        const { logp: lp, entropy } = tokenLogprobs(decoder, hidden, packed.batch, packed.tokens, config.temperature);
        const of = (pick: Parameters<typeof packedTensor>[1]) => packedTensor(rollouts, pick, lp);
        const sampled = of(({ lpOld }) => lpOld);
        if (this.#update.first) gap = this.#measureGap(lp, sampled, totals);
        const result = algorithm.loss(
          {
            lp,
            lpOld: this.#lpOld(rollouts, lp, sampled),
            advantages: of(({ advantages }) => advantages),
            segments: segmentsOf(packed.lengths, lp),
            entropy,
            ...(rollouts[0]?.lpRef === undefined ? {} : { lpRef: of(({ lpRef }) => lpRef) }),
            ...(critic === null
              ? {}
              : {
                  values: critic.values(packed, hidden),
                  valuesOld: of(({ values }) => values),
                  returns: of(({ returns }) => returns),
                }),
          },
          this.#options(),
          totals,
        );
        metrics = result.metrics;
        return result.loss;
      },
      { checkpointing: config.gradientCheckpointing },
    );
    const { ratio_max: largest, ...shares } = metrics;
    if (largest !== undefined) this.#ratioMaxima.push(keep(largest));
    return { ...shares, ...gap, loss };
  }

  afterUpdate(metrics: Record<string, number>): Record<string, number> {
    this.#update.oldKl = metrics.old_kl ?? 0;
    const ratioMax = Math.max(...this.#ratioMaxima.map((value) => value.item()));
    this.#drop();
    const { first } = this.#update;
    return {
      ...metrics,
      ratio_max: ratioMax,
      ...(first ? { sampler_gap_max: this.#gap.max } : {}),
      ...(first ? firstTerms(metrics) : {}),
    };
  }

  async saveModel(folder: string): Promise<void> {
    await saveForTraining(this.#parts.model, this.#parts.tokenizer, folder);
  }
  loadModel(folder: string): void {
    restoreForTraining(this.#parts.model, folder);
  }
  saveExtras(folder: string): void {
    this.#parts.critic?.save(folder);
  }
  loadExtras(folder: string): void {
    this.#parts.critic?.restore(folder);
  }

  state(): PolicyState {
    return { prompts: this.#parts.prompts.state(), rewards: this.#shaper.state(), klCoef: this.#klCoef };
  }

  restore(state: unknown): void {
    const { prompts, rewards, klCoef } = state as PolicyState;
    this.#parts.prompts.restore(prompts);
    this.#shaper.restore(rewards);
    this.#klCoef = klCoef;
  }

  #options(): PolicyOptions {
    return { ...this.#parts.options, klCoef: this.#klCoef };
  }

  /** lpOld is the sampler's. Where the trainer's own is asked for, the first update is on-policy to the last bit. */
  #lpOld(rollouts: MicroBatch, lp: Tensor, sampled: Tensor): Tensor {
    if (this.#parts.config.oldLogprobs === 'sampler') return sampled;
    if (this.#update.first) return lp.detach();
    return packedTensor(rollouts, ({ lpTrainer }) => lpTrainer, lp);
  }

  /** Reads back, because a run must stop before an update whose ratios are wrong, not after it. */
  #measureGap(lp: Tensor, sampled: Tensor, totals: StepTotals): Record<string, number> {
    const { config, model } = this.#parts;
    const { sum, max } = noGrad(() => {
      const difference = lp.detach().sub(sampled).abs();
      return { sum: difference.sum().item(), max: difference.max().item() };
    });
    this.#gap.max = Math.max(this.#gap.max, max);
    const mean = sum / lp.size(0);
    checkSamplerGap({ mean, max }, model.decoder.dtype, this.#update.step, config.maxSamplerGap);
    return { sampler_gap: sum / totals.tokens };
  }

  #drop(): void {
    for (const value of this.#ratioMaxima.splice(0)) value.dispose();
  }
}

/** The first update's terms under names of their own: later ones move, and `attune replay` recomputes the first. */
function firstTerms(metrics: Record<string, number>): Record<string, number> {
  const names = ['policy_loss', 'value_loss', 'kl'].filter((name) => metrics[name] !== undefined);
  return Object.fromEntries(names.map((name) => [`first_${name}`, metrics[name] as number]));
}

/** lpOld − lpRef per token. */
const k1Of = ({ lpOld, lpRef }: Rollout) => Float64Array.from(lpOld, (lp, t) => lp - (lpRef?.[t] as number));

/** Sets advantages and returns of a step's rollouts. */
export function weighRollouts(algorithm: PolicyAlgorithm, options: PolicyOptions, rollouts: readonly Rollout[]): void {
  if (rollouts.length === 0) return;
  const first = rollouts[0] as Rollout;
  const packed = (pick: (rollout: Rollout) => ArrayLike<number>) =>
    Float64Array.from(rollouts.flatMap((rollout) => Array.from(pick(rollout))));
  const known = rollouts.every(({ correct }) => correct !== undefined);
  const { perToken, perResponse, returns } = policyAdvantages(algorithm, options, {
    rewards: rollouts.map(({ reward }) => reward),
    groups: rollouts.map(({ group }) => group),
    lengths: rollouts.map(({ completionIds }) => completionIds.length),
    ...(known ? { correct: rollouts.map(({ correct }) => Number(correct)) } : {}),
    ...(first.lpRef === undefined ? {} : { k1: packed(k1Of) }),
    ...(first.values === undefined ? {} : { values: packed(({ values }) => values ?? []) }),
  });
  let start = 0;
  for (const [i, rollout] of rollouts.entries()) {
    const end = start + rollout.completionIds.length;
    rollout.advantages = perToken.slice(start, end);
    rollout.advantage = perResponse[i] as number;
    if (returns !== undefined) rollout.returns = returns.slice(start, end);
    start = end;
  }
}

/** The rollouts of groups that are neither right nor wrong throughout; by their scores where nothing says what is right. */
export function worthTraining(rollouts: readonly Rollout[]): Rollout[] {
  const kept = informative(
    rollouts.map(({ correct, score }) => Number(correct ?? score)),
    rollouts.map(({ group }) => group),
  );
  return rollouts.filter((_, i) => kept[i]);
}

function learnFrom(source: PromptSource, prompts: readonly PolicyPrompt[], rollouts: readonly Rollout[]): void {
  if (source.learn === undefined) return;
  const success = prompts.map((_, group) => {
    const own = rollouts.filter(({ prompt }) => prompt === prompts[group]);
    return own.filter(({ correct }) => correct).length / Math.max(1, own.length);
  });
  source.learn(prompts, success);
}
