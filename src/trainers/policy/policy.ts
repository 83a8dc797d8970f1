/**
 * Online RL with any of the policy-gradient algorithms, against reward models, verifiers and functions of one's own.
 *
 *     const run = await trainPolicy({ model: 'Qwen/Qwen3-0.6B', algorithm: 'grpo', task: 'chain_sum:1-3', lora: true });
 *     for await (const { step, metrics } of run) console.log(step, metrics['train/reward'], metrics['eval/accuracy']);
 *
 * Dropout is off throughout: the trainer must give the tokens the probabilities that the sampler drew them with.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { usesReference } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { resolveModel } from '../../hub/hub.ts';
import { loadModel, loadTokenizer, type Model, Sampler, withoutAdapters } from '../../models/index.ts';
import { AdamW } from '../../nn/index.ts';
import { type RewardFunction, type RewardScorer, rewardFunction } from '../../rewards/index.ts';
import { evaluatePrompts } from '../../rollouts/evaluation.ts';
import { openPrompts } from '../../rollouts/opening.ts';
import type { PromptSource } from '../../rollouts/prompts.ts';
import { storedEvaluation } from '../../rollouts/records.ts';
import type { RolloutSampler } from '../../rollouts/rollout.ts';
import { configuredScorer } from '../../rollouts/scoring.ts';
import { type ResolvedRun, type RunOptions, resolveRun, savedConfig } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { loopOptions, startRun } from '../loop/config.ts';
import { type LoopOptions, trainLoop } from '../loop/loop.ts';
import { prefixed } from '../loop/sums.ts';
import { type ProgramConfig, separateRows, type TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import { loadForTraining } from '../setup.ts';
import { algorithmOf, checkPolicyConfig, type PolicyConfig, type PolicyInput, policySchema } from './config.ts';
import { Critic } from './critic.ts';
import { writePolicyReport } from './report.ts';
import { PolicyTask } from './task.ts';

export interface PolicyTrainerOptions extends TrainerOptions {
  /** Rewards that the program brings along: functions of a batch, or scorers; summed with those of the config. */
  rewards?: readonly (RewardFunction | RewardScorer)[];
  /** How the run's folder differs from the usual one; `curves: false` leaves out pictures and report. */
  run?: Partial<RunOptions>;
  checkpointName?: LoopOptions['checkpointName'];
  /** Makes the sampler; the models' own unless given. */
  sampler?: (model: Model, tokenizer: Tokenizer) => RolloutSampler;
  /** The evaluation before the first step. */
  onStart?: (metrics: Record<string, number>) => void;
  /** A sample that a reward module failed on, with --on-reward-error score. */
  onRewardFailure?: (error: Error) => void;
}

export async function trainPolicy(
  input: ProgramConfig<PolicyInput>,
  options: PolicyTrainerOptions = {},
): Promise<TrainingRun> {
  const { flags, given } = separateRows(input, options);
  return startPolicy(await resolveRun(policySchema, flags), { ...options, ...given });
}

/** The same from a config that is already resolved, as commands have it. */
export async function startPolicy(
  resolved: ResolvedRun<typeof policySchema>,
  options: PolicyTrainerOptions = {},
): Promise<TrainingRun> {
  using opened = new DisposableStack();
  using freed = new DisposableStack();
  const run = await setUp(resolved, options, opened, freed);
  freed.move();
  return run;
}

/** `opened` is closed when training ends; `freed` (the model) only where it never begins. */
async function setUp(
  resolved: ResolvedRun<typeof policySchema>,
  options: PolicyTrainerOptions,
  opened: DisposableStack,
  freed: DisposableStack,
): Promise<TrainingRun> {
  const { config, resume } = resolved;
  const { progress, signal } = options;
  checkPolicyConfig(config, options.dataset !== undefined);
  await checkReference(config);
  const { algorithm, options: algorithmOptions } = algorithmOf(config);
  const { model, tokenizer, device } = await loadForTraining(config, { progress });
  freed.use(model);
  model.train(false);
  const { prompts, train, evaluation } = await openPrompts(config, tokenizer, options.dataset);
  const extra = (options.rewards ?? []).map((reward, i) =>
    typeof reward === 'function' ? rewardFunction(reward, { name: reward.name || `function_${i}` }) : reward,
  );
  const onFailure = options.onRewardFailure;
  const scorer = await configuredScorer(config, { device, prompts: [...train, ...evaluation], extra, onFailure });
  opened.defer(() => scorer.dispose?.());
  const frozen = usesReference(algorithm, algorithmOptions) ? await openFrozen(config, model) : null;
  opened.defer(() => frozen?.dispose());
  const critic = algorithm.needsValue ? await openCritic(config, model) : null;
  opened.defer(() => critic?.dispose());
  const sampler = options.sampler?.(model, tokenizer) ?? new Sampler(model, { slots: config.rolloutSlots, tokenizer });
  opened.defer(() => sampler.dispose());
  const optimizer = new AdamW([...model.trainable(), ...(critic?.parameters() ?? [])], {
    lr: config.lr,
    weightDecay: config.weightDecay,
  });
  opened.defer(() => optimizer.dispose());
  const run = await startRun('train policy', policySchema, resolved, {
    rolloutsDir: config.rolloutsDir,
    ...options.run,
  });
  const store = config.saveRollouts ? await run.rollouts() : undefined;
  const task = new PolicyTask({
    config,
    algorithm,
    options: algorithmOptions,
    model,
    tokenizer,
    sampler,
    reference: frozen?.use ?? null,
    critic,
    prompts,
    scorer,
    optimizer,
    totalSteps: stepsOf(config, prompts),
    store,
    ...(evaluation.length === 0 ? {} : { evaluate }),
  });

  async function evaluate(step: number): Promise<Record<string, number>> {
    const drawn = { ...config, samples: config.evalSamples };
    const { metrics, greedy, sampled } = await evaluatePrompts(sampler, tokenizer, scorer, evaluation, drawn);
    await store?.addEval(storedEvaluation([...greedy, ...sampled], { step, epoch: prompts.epoch }));
    return metrics;
  }

  /** The start is judged too, so that every curve begins with what was there before. */
  async function* steps(): ReturnType<typeof trainLoop> {
    if (config.evalAtStart && resume === undefined && evaluation.length > 0) {
      const metrics = prefixed('eval/', await evaluate(0));
      run.metrics.row(0, metrics);
      options.onStart?.(metrics);
    }
    return yield* trainLoop(task, {
      ...loopOptions(config, task.totalSteps),
      run,
      config: savedConfig(policySchema, config),
      resumeFrom: resume?.path,
      checkpointName: options.checkpointName,
      signal,
      progress,
      label: algorithm.name,
    });
  }

  const own = opened.move();
  return new TrainingRun({
    run,
    model,
    tokenizer,
    totalSteps: task.totalSteps,
    onStep: options.onStep,
    steps: steps(),
    after: async () => {
      if (options.run?.curves !== false) await writePolicyReport(run.folder);
    },
    close: () => own.dispose(),
  });
}

async function openCritic(config: PolicyConfig, policy: Model): Promise<Critic> {
  const { dtype } = policy.decoder;
  const own = config.valueBackbone === 'own';
  const backbone = own ? await loadModel(config.model, { dtype, device: policy.device }) : null;
  return new Critic(policy, backbone, config.seed);
}

/** With fresh adapters the policy's own base, adapters off, is the reference. */
async function sharesBase({ lora, refModel, model }: PolicyConfig): Promise<boolean> {
  return lora && refModel === undefined && !existsSync(join(await resolveModel(model), 'adapter_config.json'));
}

async function checkReference(config: PolicyConfig): Promise<void> {
  const { refQuantType } = config;
  if (refQuantType !== undefined && (await sharesBase(config)))
    throw new UserError(
      `--ref-quant-type ${refQuantType}: with LoRA the reference is the policy's own base, which takes no memory of its own. Leave the option out, or name another model with --ref-model.`,
    );
}

interface Frozen {
  use: <T>(body: (model: Model) => T) => T;
  dispose(): void;
}

/**
 * The reference: the policy's own base, or a second copy of the starting model (a policy that starts from trained adapters is
 * compared with those, not with the bare base).
 */
async function openFrozen(config: PolicyConfig, policy: Model): Promise<Frozen> {
  if (await sharesBase(config))
    return { use: (body) => withoutAdapters(policy, () => body(policy)), dispose: () => {} };
  const { dtype } = policy.decoder;
  const { refModel, refQuantType: quantType } = config;
  const model = await loadModel(refModel ?? config.model, { dtype, device: policy.device, quantType });
  model.train(false);
  model.decoder.requiresGrad_(false);
  return { use: (body) => body(model), dispose: () => model.dispose() };
}

const endlessSteps = 500;

function stepsOf(config: PolicyConfig, prompts: PromptSource): number {
  if (config.maxSteps !== undefined) return config.maxSteps;
  if (prompts.size === undefined) return endlessSteps;
  return Math.max(1, Math.ceil((config.epochs * prompts.size) / (config.batchSize * config.gradAccum)));
}

async function describeReference(config: PolicyConfig): Promise<string> {
  if (await sharesBase(config)) return 'the base with adapters off';
  return `${config.refModel ?? 'a second copy'}${config.refQuantType === undefined ? '' : `, ${config.refQuantType}`}`;
}

/** What a run would do, in words. */
export async function policyPlan(config: PolicyConfig): Promise<string> {
  checkPolicyConfig(config);
  await checkReference(config);
  const { algorithm, options } = algorithmOf(config);
  const tokenizer = await loadTokenizer(config);
  const { prompts, evaluation } = await openPrompts(config, tokenizer);
  const perStep = config.batchSize * config.gradAccum;
  const updates = options.ppoEpochs * config.nMinibatches;
  return [
    `${algorithm.name}: ${algorithm.summary}`,
    `prompts: ${prompts.size === undefined ? 'endless' : prompts.size}, ${evaluation.length} held out for evaluation`,
    `each step: ${perStep} prompts × ${config.groupSize} responses = ${perStep * config.groupSize} rollouts, ${updates} update${updates === 1 ? '' : 's'}`,
    `steps: ${stepsOf(config, prompts)}`,
    `reference: ${usesReference(algorithm, options) ? await describeReference(config) : 'none'}`,
  ].join('\n');
}
