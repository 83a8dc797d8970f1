/**
 * Policy optimisation as a task of the shared loop: prompts → rollouts → rewards → advantages → updates. The same code
 * serves every algorithm; what differs is in the definitions of src/algorithms/policy.
 *
 * Rollouts wait in host memory between sampling and the loss. They take no device memory there, and can be used several
 * times (`ppoEpochs`, `nMinibatches`) in micro-batches of a token budget.
 */
import {
  adaptedKlCoef,
  meanOf,
  type PolicyAlgorithm,
  type PolicyOptions,
  stepTotals,
  usesTeacherKl,
} from '../../algorithms/index.ts';
import { computeDealt, cutEvenly } from '../../dist/deal.ts';
import { soloWorld, type World } from '../../dist/world.ts';
import { packedTokens, type Started } from '../../models/decoder/responses.ts';
import type { Decoder, Model } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { byTokens, minibatches, startScores, withTokens } from '../../rollouts/batches.ts';
import {
  assignEach,
  drawRollouts,
  ExpectedLengths,
  type Measuring,
  type RolloutPlayer,
} from '../../rollouts/drawing.ts';
import { rolloutMetrics, withOtherNames, withoutRewards } from '../../rollouts/metrics.ts';
import { type PromptSource, reportSuccess } from '../../rollouts/prompts.ts';
import { storedRollouts } from '../../rollouts/records.ts';
import { type Rollout, type RolloutSampler, rolloutSeeds } from '../../rollouts/rollout.ts';
import type { ConfiguredScorer } from '../../rollouts/scorer.ts';
import { RewardShaper } from '../../rollouts/shaping.ts';
import type { RolloutStore } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { Optimizer, StepContext, StepLimit, StepOutcome, TrainTask, Update } from '../loop/task.ts';
import type { Reference } from '../reference/reference.ts';
import { restoreForTraining, saveForTraining } from '../setup.ts';
import { sampledTeacherMetrics } from '../teacher/responses.ts';
import {
  computeAdvantages,
  dropUniformGroups,
  leavesOut,
  needsMeasures,
  responseKl,
  trainedRollouts,
} from './advantages.ts';
import type { PolicyConfig } from './config.ts';
import type { Critic } from './critic.ts';
import { backwardRollouts } from './loss.ts';
import { checkGivenRewards } from './rules.ts';
import { checkedState, type PolicyState } from './state.ts';
import type { PlannedSteps } from './steps.ts';

export interface PolicyParts {
  config: PolicyConfig;
  algorithm: PolicyAlgorithm;
  options: PolicyOptions;
  model: Model;
  tokenizer: Tokenizer;
  sampler: RolloutSampler;
  /** null if the algorithm needs none. */
  reference: Pick<Reference, 'use'> | null;
  critic: Critic | null;
  teacher?: Model | null;
  prompts: PromptSource;
  /** The processes that train together. Default: this one alone. */
  world?: World;
  scorer: RewardScorer & Pick<ConfiguredScorer, 'isNone'>;
  /** Plays episodes of an environment or agent instead of sampling single responses. */
  player?: RolloutPlayer;
  /** Names of the rewards passed by a program. */
  given?: readonly string[];
  optimizer: Optimizer;
  plannedSteps: PlannedSteps;
  evaluate?: (step: number) => Promise<Record<string, number>>;
  /** A hash of the held-out prompts. */
  heldOutFingerprint?: string;
  store?: RolloutStore;
}

export class PolicyTask implements TrainTask {
  readonly optimizer: Optimizer;
  readonly decoder: Decoder;
  readonly dataFingerprint: string;
  readonly heldOutFingerprint: string | undefined;
  readonly evaluate: TrainTask['evaluate'];
  readonly #parts: PolicyParts;
  readonly #shaper: RewardShaper;
  readonly #lengths = new ExpectedLengths();
  #klCoef: number;
  /** Measurements started while the rollouts are being scored. */
  #ahead: { rollouts: readonly Rollout[]; fields: Started<Partial<Rollout>[]> } | null = null;
  #taken = { steps: 0, prompts: 0 };
  #scored = { responses: 0, truncated: 0 };

  constructor(parts: PolicyParts) {
    const { config, options } = parts;
    this.#parts = parts;
    this.optimizer = parts.optimizer;
    this.decoder = parts.model.decoder;
    this.dataFingerprint = parts.prompts.fingerprint;
    this.heldOutFingerprint = parts.heldOutFingerprint;
    this.evaluate = parts.evaluate;
    this.#klCoef = options.klCoef;
    const measuredOnly = parts.algorithm.needsTeacher;
    this.#shaper = new RewardShaper({
      normalization: measuredOnly ? 'none' : config.rewardNormalization,
      eosPenalty: measuredOnly ? 0 : config.eosPenalty,
      overlongRamp: options.overlongRamp,
      maxNewTokens: config.maxNewTokens,
    });
  }

  /** The steps taken, plus those that the remaining prompts give at the current batch size. */
  get totalSteps(): number {
    const { maxSteps, prompts } = this.#parts.plannedSteps;
    const { steps, prompts: taken } = this.#taken;
    return maxSteps ?? steps + Math.max(0, Math.ceil((prompts - taken) / this.#promptsPerStep));
  }

  get limits(): StepLimit[] {
    return [this.#parts.plannedSteps.maxSteps === undefined ? 'epochs' : 'maxSteps'];
  }

  /** The run's responses so far, and how many of them were too long for the reward model. */
  get scored(): Readonly<{ responses: number; truncated: number }> {
    return this.#scored;
  }

  get #promptsPerStep(): number {
    const { batchSize, gradAccum } = this.#parts.config;
    return batchSize * gradAccum;
  }

  async step(number: number, { update, wholeWeights, signal }: StepContext): Promise<StepOutcome> {
    const { algorithm, config, prompts, scorer, store } = this.#parts;
    const started = performance.now();
    await wholeWeights();
    const { sampled, trained, asked, seconds } = await this.#sample(number, signal);
    const prepared = () => {
      computeAdvantages(algorithm, this.#options(), trained);
      const metrics = rolloutMetrics(sampled, trained);
      return algorithm.needsTeacher
        ? { ...withoutRewards(metrics, scorer), ...sampledTeacherMetrics(trained) }
        : metrics;
    };
    // If advantages do not depend on the measurements, they are computed while the device still works on those.
    const early = needsMeasures(algorithm) ? undefined : prepared();
    await this.#measureAll(trained);
    const about = early ?? prepared();
    const { epoch } = prompts;
    await store?.add(storedRollouts(sampled, { step: number, epoch, tokens: config.saveTokens }));
    const tokens = sampled.reduce((sum, { responseIds }) => sum + responseIds.length, 0);
    const before = {
      ...about,
      // tells readers of the metrics, such as signals.ts, which ratio was used
      ...(config.truncatedRatio ? { truncated_ratio: 1 } : {}),
      ...prompts.metrics?.(),
      ...this.#adaptKl(trained),
      rollout_seconds: seconds,
      rollout_tokens_per_second: tokens / seconds,
      prepare_seconds: (performance.now() - started) / 1000 - seconds,
    };
    const metrics = withOtherNames({ ...before, ...(await this.#train(trained, number, update)) });
    this.#taken = { steps: number, prompts: this.#taken.prompts + this.#promptsPerStep };
    this.#scored = {
      responses: this.#scored.responses + sampled.length,
      truncated: this.#scored.truncated + sampled.filter(({ truncated }) => truncated).length,
    };
    return { examples: asked, epoch, metrics };
  }

  /** Samples and scores responses. Dropping uniform groups may take several rounds. */
  async #sample(step: number, signal?: AbortSignal) {
    const { algorithm, config, options, prompts, sampler, tokenizer, scorer, player, world = soloWorld } = this.#parts;
    const wanted = this.#promptsPerStep;
    const sampled: Rollout[] = [];
    let trained: Rollout[] = [];
    let asked = 0;
    let seconds = 0;
    try {
      for (let round = 0; round < (options.dropEqualGroups ? config.maxSamplingRounds : 1); round++) {
        const missing = wanted - trained.length / config.groupSize;
        if (missing <= 0) break;
        const batch = await prompts.take(missing);
        const seeds = rolloutSeeds(config.seed, step, round);
        const ahead = { measuring: this.#measuring, onSampled: this.#startAhead };
        const drawing = { ...config, seeds, signal, world, lengths: this.#lengths, player, ...ahead };
        const { rollouts, seconds: spent } = await drawRollouts(sampler, tokenizer, scorer, batch, drawing);
        seconds += spent;
        signal?.throwIfAborted();
        this.#shaper.shape(rollouts);
        for (const rollout of rollouts) rollout.group += asked;
        asked += batch.length;
        reportSuccess(prompts, batch, rollouts);
        sampled.push(...rollouts);
        trained.push(...rollouts);
        if (options.dropEqualGroups) trained = dropUniformGroups(trained);
      }
    } catch (error) {
      this.#ahead?.fields.drop();
      this.#ahead = null;
      // A signal may be aborted with any reason. The loop recognises an interrupt by the name AbortError.
      throw signal?.aborted ? new DOMException('interrupted', 'AbortError') : error;
    }
    return { sampled, trained: trainedRollouts(algorithm, options, trained), asked, seconds };
  }

  /** What #measure adds to every rollout before the first update. */
  get #measures(): { any: boolean; teacher: Model | null; own: boolean; recompute: boolean } {
    const { algorithm, config, options, critic, reference } = this.#parts;
    const severalUpdates = options.ppoEpochs * config.nMinibatches > 1;
    const recompute = config.oldLogprobs === 'trainer' && severalUpdates;
    const own = critic !== null || recompute;
    const teacher = usesTeacherKl(algorithm, options) ? null : (this.#parts.teacher ?? null);
    return { any: reference !== null || teacher !== null || own, teacher, own, recompute };
  }

  /**
   * Whether each rank measures its own rollouts before the ranks exchange them. Off if groups may be dropped, and with
   * --exact, whose micro-batches must not depend on the number of ranks.
   */
  get #measuresEarly(): boolean {
    const { algorithm, config, options, world = soloWorld } = this.#parts;
    return (
      process.env.ATTUNE_EARLY !== '0' &&
      world.size > 1 &&
      !config.exact &&
      !leavesOut(algorithm, options) &&
      this.#measures.any
    );
  }

  /** Log-probs of each rollout under reference and teacher, values and, if needed, the trainer's own log-probs. */
  #measure = (part: readonly Rollout[]): Partial<Rollout>[] => this.#startMeasuring([part]).read();

  /** Starts measuring several micro-batches; `read` waits for the results. */
  #startMeasuring(parts: readonly (readonly Rollout[])[]): Started<Partial<Rollout>[]> {
    const { config, model, critic, reference } = this.#parts;
    const { teacher, own: isOwn, recompute } = this.#measures;
    // All micro-batches under one swap: the reference may be another adapter on the policy's base.
    const frozen = reference?.use((other) => parts.map((part) => startScores(other, null, part, config)));
    const own = isOwn ? parts.map((part) => startScores(model, critic, part, config)) : undefined;
    const taught = teacher && parts.map((part) => startScores(teacher, null, part, config));
    return {
      read: () =>
        parts.flatMap((part, p) => {
          const [theirs, ours, teachers] = [frozen?.[p]?.read(), own?.[p]?.read(), taught?.[p]?.read()];
          return part.map((_, i) => ({
            ...(theirs === undefined ? {} : { lpRef: theirs.logprobs[i] }),
            ...(teachers === undefined ? {} : { lpTeacher: teachers.logprobs[i] }),
            ...(ours?.values === undefined ? {} : { values: ours.values[i] }),
            ...(ours === undefined || !recompute ? {} : { lpTrainer: ours.logprobs[i] }),
          }));
        }),
      drop: () => {
        for (const scores of [...(frozen ?? []), ...(own ?? []), ...(taught ?? [])]) scores.drop();
      },
    };
  }

  /** A single rank starts measuring while texts and scores are made, unless groups may be dropped. */
  #startAhead = (rollouts: readonly Rollout[]): void => {
    const { algorithm, options, world = soloWorld } = this.#parts;
    if (world.size > 1 || leavesOut(algorithm, options) || !this.#measures.any) return;
    this.#ahead = { rollouts, fields: this.#startMeasuring(this.#microBatches(rollouts)) };
  };

  get #measuring(): Measuring | undefined {
    if (!this.#measuresEarly) return undefined;
    const { config, model } = this.#parts;
    const pieces = (rollouts: readonly Rollout[]) => {
      const size = this.#packedTokens(rollouts) / earlyPieces;
      return byTokens(rollouts, Math.min(config.microBatchTokens, Math.max(leastTokens, size)), model.decoder);
    };
    return { pieces, cost: this.#packedTokens, measure: this.#measure };
  }

  /** Measures the rollouts that were not measured early, dealt over the ranks. */
  async #measureAll(rollouts: Rollout[]): Promise<void> {
    if (this.#measuresEarly || !this.#measures.any) return;
    const { world = soloWorld } = this.#parts;
    const ahead = this.#ahead;
    this.#ahead = null;
    if (ahead !== null) {
      assignEach(ahead.rollouts, ahead.fields.read());
      return;
    }
    const parts = this.#microBatches(rollouts);
    const dealt = () => computeDealt(world, parts, this.#packedTokens, this.#measure);
    assignEach(rollouts, world.size === 1 ? this.#startMeasuring(parts).read() : (await dealt()).flat());
  }

  /** Adapts the KL coefficient for the next step; returns this step's coefficient and KL. */
  #adaptKl(rollouts: readonly Rollout[]): Record<string, number> {
    const { options, config } = this.#parts;
    const used = this.#klCoef;
    if (rollouts.length === 0 || rollouts[0]?.lpRef === undefined) return used === 0 ? {} : { kl_coef: used };
    const kl = responseKl(rollouts);
    if (options.adaptiveKl) this.#klCoef = adaptedKlCoef(used, kl, config.klTarget);
    return { kl_coef: used, response_kl: kl };
  }

  /** The updates of a step. Stops early if the policy's KL to the sampling policy exceeds `targetKl`. */
  async #train(rollouts: readonly Rollout[], step: number, update: Update): Promise<Record<string, number>> {
    const { config } = this.#parts;
    const options = this.#options();
    const started = performance.now();
    const first: Record<string, number> = {};
    const kls: number[] = [];
    let tokens = 0;
    let updates = 0;
    for (const part of this.#passes(rollouts, step)) {
      const lengths = part.map(({ responseIds }) => responseIds.length);
      const totals = stepTotals(lengths, config.maxNewTokens);
      const context = { ...this.#parts, options, step, totals, isFirst: updates === 0 };
      const metrics = await update(this.#microBatches(withTokens(part)), (batch) => backwardRollouts(batch, context), {
        cost: this.#packedTokens,
      });
      if (updates === 0) Object.assign(first, firstTerms(metrics));
      if (metrics.kl !== undefined) kls.push(metrics.kl);
      updates++;
      tokens += tokensOf(part);
      if (options.targetKl > 0 && (metrics.old_kl ?? 0) > options.targetKl) break;
    }
    const seconds = (performance.now() - started) / 1000;
    // The loop averages the updates' metrics. The mean KL is needed earlier: withOtherNames gives it a second name.
    const kl: Record<string, number> = kls.length === 0 ? {} : { kl: meanOf(kls) };
    return { updates, train_seconds: seconds, train_tokens_per_second: tokens / seconds, ...first, ...kl };
  }

  /** Micro-batches with equal work for every rank or, with --exact, the same for any number of ranks. */
  #microBatches(rollouts: readonly Rollout[]): Rollout[][] {
    const { config, model, world = soloWorld } = this.#parts;
    const { microBatchTokens: most, exact } = config;
    const cut = (tokens: number) => byTokens(rollouts, tokens, model.decoder);
    return exact || world.size === 1 ? cut(most) : cutEvenly(world, { whole: this.#packedTokens(rollouts), most }, cut);
  }

  /** The number of tokens that go through the model, counting shared prompts once. */
  #packedTokens = (rollouts: readonly Rollout[]): number => packedTokens(rollouts, this.#parts.model.decoder);

  /** The rollouts of each update: `ppoEpochs` passes, each in `nMinibatches` parts. */
  *#passes(rollouts: readonly Rollout[], step: number): Generator<Rollout[]> {
    const { config, options } = this.#parts;
    if (rollouts.length === 0) return;
    const parts = (pass: number) => minibatches(rollouts, config.nMinibatches, [config.seed, step, pass]);
    for (let pass = 0; pass < options.ppoEpochs; pass++)
      yield* parts(pass).filter((part) => withTokens(part).length > 0);
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
    const prompts = this.#parts.prompts.state();
    const [taken, scored] = [{ ...this.#taken }, { ...this.#scored }];
    const { given = [] } = this.#parts;
    return { prompts, rewards: this.#shaper.state(), klCoef: this.#klCoef, taken, scored, given };
  }
  restore(state: unknown): void {
    const { prompts, rewards, klCoef, taken, scored, given } = checkedState(state);
    checkGivenRewards(given, this.#parts.given ?? []);
    this.#taken = { ...taken };
    this.#scored = { responses: 0, truncated: 0, ...scored };
    this.#parts.prompts.restore(prompts);
    this.#shaper.restore(rewards);
    this.#klCoef = klCoef;
  }

  #options(): PolicyOptions {
    return { ...this.#parts.options, klCoef: this.#klCoef };
  }
}

/** The pieces in which a rank measures its rollouts early. Those with fewer tokens would use the device badly. */
const earlyPieces = 4;
const leastTokens = 512;

const tokensOf = (rollouts: readonly Rollout[]) => rollouts.reduce((sum, { ids }) => sum + ids.length, 0);

/** The first update's loss terms under separate names, for `attune replay`. */
function firstTerms(metrics: Record<string, number>): Record<string, number> {
  const names = ['policy_loss', 'value_loss', 'kl'].filter((name) => metrics[name] !== undefined);
  return Object.fromEntries(names.map((name) => [`first_${name}`, metrics[name] as number]));
}
