/**
 * Online RL with any of the policy-gradient algorithms, and with reward models, verifiers or your own reward functions.
 *
 *     const run = await trainPolicy({ model: 'Qwen/Qwen3-0.6B', algorithm: 'grpo', task: 'chain_sum:1-3', lora: true });
 *     for await (const { step, metrics } of run) console.log(step, metrics['train/reward'], metrics['eval/accuracy']);
 *
 * This file sets a run up; task.ts has the training step. Dropout is off, because the trainer must compute the same
 * probabilities as the sampler.
 */
import { type PolicyAlgorithm, stdOf, useAlgorithm, usesReference } from '../../algorithms/index.ts';
import { call, checkArguments, list, type Rule } from '../../arguments.ts';
import { makeOptimizer } from '../../dist/shard/optimizer.ts';
import type { Agent, EnvironmentRecipe } from '../../environments/index.ts';
import { agentText, environmentText } from '../../environments/recipe.ts';
import { UserError } from '../../errors.ts';
import { loadModel, type Model, Sampler } from '../../models/index.ts';
import { type RewardFunction, type RewardScorer, rewardFunction } from '../../rewards/index.ts';
import { anyScorer } from '../../rewards/scorer.ts';
import { configuredPlayer } from '../../rollouts/agents/configured.ts';
import { evaluatePrompts } from '../../rollouts/evaluation.ts';
import { withOtherNames, withoutRewards } from '../../rollouts/metrics.ts';
import { openedEnvironments, openPrompts } from '../../rollouts/opening.ts';
import { promptsFingerprint } from '../../rollouts/prompts.ts';
import { storedEvaluation } from '../../rollouts/records.ts';
import { type RolloutSampler, rolloutSeeds } from '../../rollouts/rollout.ts';
import { configuredScorer } from '../../rollouts/scorer.ts';
import { meanTokenKl } from '../../rollouts/token-kl.ts';
import { type ResolvedRun, readMetrics, refusal } from '../../runs/index.ts';
import { spelled } from '../../spelling.ts';
import { recipeText, type TaskRecipe } from '../../tasks/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { evalName, type Judged, unknownMetric } from '../loop/best.ts';
import { startRun } from '../loop/config.ts';
import { prefixed } from '../loop/metric-names.ts';
import { setUpTraining, trainingParts } from '../loop/set-up.ts';
import { type StepOf, type Training, trainingOf } from '../loop/training.ts';
import type { ProgramConfig, TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import { openReference } from '../reference/open.ts';
import { loadForTraining } from '../setup.ts';
import { evaluateAgainstTeacher } from '../teacher/responses.ts';
import { hasTeacher, openTeacher } from '../teacher/teacher.ts';
import { type AlgorithmConfig, algorithmOf } from './algorithm-options.ts';
import { checkPolicyConfig, type PolicyConfig, type PolicyInput, policySchema } from './config.ts';
import { Critic } from './critic.ts';
import { checkReference, promptsWithin } from './plan.ts';
import { writePolicyReport } from './report.ts';
import { namedPrompts } from './state.ts';
import { plannedSteps } from './steps.ts';
import { PolicyTask } from './task.ts';

/** Options of `trainPolicy` that only a program can pass. */
export interface PolicyTrainerOptions extends TrainerOptions {
  /** Your own rewards, as functions or scorers, in addition to those of the config. */
  rewards?: readonly (RewardFunction | RewardScorer)[];
  /** Makes the sampler. The default is attune's own. */
  sampler?: (model: Model, tokenizer: Tokenizer) => RolloutSampler;
  /** Called with the metrics of the evaluation before the first step. */
  onStart?: (metrics: Record<string, number>) => void;
  /** Called for each sample whose reward failed, with --on-reward-error score. */
  onRewardFailure?: (error: Error) => void;
}

/**
 * A step of policy training. `accuracy` is present if there is a verifier or known answers. `reward` is absent if there
 * is only a teacher.
 */
export type PolicyStep = StepOf<
  'reward' | 'reward_std' | 'length_mean' | 'ended' | 'policy_loss',
  'reward' | 'length_mean'
>;

/**
 * Trains a policy by online RL; `algorithm`, `task`, `env` and `agent` are each a string or an object of your own, from
 * `definePolicyAlgorithm`, `defineTask`, `defineEnvironment` or `defineAgent`. A resumed run needs the same objects
 * again.
 */
export function trainPolicy(
  input: Omit<ProgramConfig<PolicyInput>, 'algorithm' | 'task' | 'env' | 'agent'> & {
    algorithm?: string | PolicyAlgorithm;
    task?: TaskRecipe;
    env?: EnvironmentRecipe;
    agent?: string | Agent;
  },
  options: PolicyTrainerOptions = {},
): Training<PolicyStep> {
  return trainingOf(
    { command: 'train policy', schema: policySchema, start: startPolicy, named, own, check },
    input,
    options,
  );
}

const own = ['rewards', 'sampler', 'onStart', 'onRewardFailure'];

function check({ rewards, sampler, onStart, onRewardFailure }: PolicyTrainerOptions): void {
  const reward: Rule = { fits: (value) => call.fits(value) || anyScorer.fits(value), wanted: 'a function or a scorer' };
  const given = { rewards, sampler, onStart, onRewardFailure };
  const rules = { rewards: list(reward), sampler: call, onStart: call, onRewardFailure: call };
  checkArguments('trainPolicy', given, rules);
}

function named(flags: Record<string, unknown>): void {
  if (typeof flags.algorithm === 'object') flags.algorithm = useAlgorithm(flags.algorithm as PolicyAlgorithm);
  if (typeof flags.task === 'object') flags.task = recipeText(flags.task as TaskRecipe);
  if (typeof flags.env === 'object') flags.env = environmentText(flags.env as EnvironmentRecipe);
  if (typeof flags.agent === 'object') flags.agent = agentText(flags.agent as Agent);
}

/** `trainPolicy` from a resolved config. */
export function startPolicy(
  resolved: ResolvedRun<typeof policySchema>,
  options: PolicyTrainerOptions = {},
): Promise<TrainingRun> {
  const { config, resume } = resolved;
  const { progress } = options;
  return setUpTraining(config, async (opened, freed, world) => {
    checkPolicyConfig(config, options.dataset !== undefined);
    await checkReference(config);
    const { algorithm, options: algorithmOptions } = algorithmOf(config);
    const { model, tokenizer, device } = await loadForTraining(config, {
      progress,
      refuse: refusal(policySchema, resolved),
    });
    freed.use(model);
    model.train(false);
    const taught = algorithm.needsTeacher && hasTeacher(config);
    const teacher = taught ? await openTeacher(config, model, tokenizer, { progress }) : null;
    opened.defer(() => teacher?.dispose());
    // Policy and teacher read the same tokens, so the smaller context decides.
    const positions = Math.min(...[model, teacher ?? model].map(({ decoder }) => decoder.spec.maxPositions));
    const environments = await openedEnvironments(config);
    opened.defer(() => environments?.dispose());
    const within = promptsWithin(config, positions);
    const player = configuredPlayer(within, tokenizer, options.onRewardFailure);
    const opening = { rows: options.dataset, environments, progress };
    const { prompts, train, evaluation } = await openPrompts(within, tokenizer, opening);
    const extra = (options.rewards ?? []).map((reward, i) =>
      typeof reward === 'function' ? rewardFunction(reward, { name: reward.name || `function_${i}` }) : reward,
    );
    const onFailure = options.onRewardFailure;
    const scorer = await configuredScorer(config, {
      ...{ device, prompts: [...train, ...evaluation], extra, onFailure },
      optional: algorithm.needsTeacher,
    });
    opened.defer(() => scorer.dispose?.());
    const compares = usesReference(algorithm, algorithmOptions);
    const reference = compares ? await openReference({ config, policy: model }) : null;
    opened.defer(() => reference?.dispose());
    const critic = algorithm.needsValue ? await openCritic(config, model) : null;
    opened.defer(() => critic?.dispose());
    const { rolloutSlots: slots, cacheDtype } = config;
    const reusePrefixes = player !== undefined; // each turn's prompt extends the previous turn
    const sampler =
      options.sampler?.(model, tokenizer) ?? new Sampler(model, { slots, tokenizer, cacheDtype, reusePrefixes });
    opened.defer(() => sampler.dispose());
    if (sampler instanceof Sampler && sampler.precision !== 'exact')
      throw new UserError('The sampler decodes fast, not exactly: training needs the log-probs of the policy itself.');
    const optimizer = makeOptimizer(
      [...model.trainable(), ...(critic?.parameters() ?? [])],
      { lr: config.lr, weightDecay: config.weightDecay },
      { world, shard: config.shard, base: model.decoder.tensors() },
    );
    opened.defer(() => optimizer.dispose());
    const placed = { rolloutsDir: config.rolloutsDir, ...options.run };
    const run = await startRun('train policy', policySchema, resolved, placed);
    opened.run = run;
    const store = config.saveRollouts && world.isFirst ? await run.rollouts() : undefined;
    const task = new PolicyTask({
      config,
      algorithm,
      options: algorithmOptions,
      model,
      tokenizer,
      sampler,
      reference,
      critic,
      teacher,
      prompts,
      scorer,
      player,
      given: extra.map(({ name }) => name),
      optimizer,
      world,
      plannedSteps: plannedSteps(config, prompts),
      store,
      ...(evaluation.length === 0 ? {} : { evaluate, heldOutFingerprint: promptsFingerprint(evaluation) }),
    });

    async function evaluate(step: number, signal?: AbortSignal): Promise<Record<string, number>> {
      const seeds = rolloutSeeds(config.seed, 'evaluation');
      const drawn = { ...config, samples: config.evalSamples, seeds, player, signal };
      const { metrics, greedy, sampled } = await evaluatePrompts(sampler, tokenizer, scorer, evaluation, drawn);
      await store?.addEval(storedEvaluation([...greedy, ...sampled], { step, epoch: prompts.epoch }));
      // KL to the reference on held-out prompts, where over-optimisation shows first.
      const scoring = { temperature: config.temperature, microBatchTokens: config.microBatchTokens };
      if (reference !== null) metrics.kl = await meanTokenKl(model, reference, greedy, scoring);
      if (teacher !== null) Object.assign(metrics, await evaluateAgainstTeacher(model, teacher, greedy, scoring));
      // Count and standard deviation, for the error bar of the mean reward.
      Object.assign(metrics, { examples: greedy.length, reward_std: stdOf(greedy.map(({ score }) => score)) });
      return withOtherNames(teacher === null ? metrics : withoutRewards(metrics, scorer));
    }

    const parts = await trainingParts(run, {
      schema: policySchema,
      resolved,
      options,
      task,
      model,
      tokenizer,
      judged: policyJudged(config),
      label: algorithm.name,
      named: resume && (() => namedPrompts(resume, tokenizer, positions)),
      world,
      after: async () => {
        if (task.scored.truncated > 0)
          progress?.start('rewards').done(truncationNote(task.scored, scorer.rewardModel?.maxLength));
        if (options.run?.curves !== false) await writePolicyReport(run.folder);
      },
    });
    const alone = world.size === 1;
    const begins =
      resume === undefined || (alone && resume.step === 0 && readMetrics(run.path('metrics.jsonl')).length === 0);
    const evaluatesFirst = config.evalAtStart && begins && evaluation.length > 0;

    /** Evaluates the starting model first, so that every curve begins with it. */
    async function* steps(): typeof parts.steps {
      if (evaluatesFirst) {
        const signal = alone ? options.signal : undefined;
        const evaluated = await evaluate(0, signal).catch((error: unknown) => {
          if (!signal?.aborted) throw error; // an interrupt: the loop saves, and the resumed run evaluates
        });
        const metrics = evaluated && prefixed('eval/', evaluated);
        if (metrics !== undefined) {
          checkNamed(config, metrics);
          run.metrics.row(0, metrics);
          options.onStart?.(metrics);
        }
      }
      return yield* parts.steps;
    }
    return { ...parts, steps: steps() };
  });
}

/** The metrics of its evaluations. The patterns depend on rewards, tasks and --eval-samples. */
export const policyJudged = (config: AlgorithmConfig): Judged => {
  const { needsTeacher } = algorithmOf(config).algorithm;
  const taught = ['teacher_kl', 'teacher_response_kl', 'teacher_logprob', 'teacher_agreement'];
  return {
    metric: needsTeacher ? 'teacher_kl' : 'reward',
    names: [
      ...['reward', 'accuracy', 'length_mean', 'length_max', 'ended', 'kl', 'sampled_reward', 'reward_mean', 'kl_div'],
      ...['completion_length_avg', 'completion_length_max', 'proper_ending_rate'],
      ...(needsTeacher ? taught : []),
      ...[/^reward_/, /^accuracy_/, /^pass_at_/],
    ],
  };
};

/** `length`: the reward model's context in tokens, unknown for a program's own scorer. */
function truncationNote({ responses, truncated }: PolicyTask['scored'], length?: number): string {
  const limit = length?.toLocaleString('en-US');
  const [most, last] = limit === undefined ? ['tokens than it reads', 'tokens'] : [`than ${limit} tokens`, limit];
  return spelled(
    `${truncated} of ${responses} responses have, with their prompts, more ${most}: the reward model scored only their last ${last} (train/score_truncated). A smaller --max-new-tokens or --prompt-max-length avoids it.`,
  );
}

/** The evaluation before the first step gives every metric name, so a misspelt one fails before any training. */
function checkNamed({ metricForBestModel: named }: PolicyConfig, metrics: Record<string, number>): void {
  if (named === undefined || evalName(named) in metrics) return;
  throw unknownMetric(evalName(named), Object.keys(metrics));
}

async function openCritic(config: PolicyConfig, policy: Model): Promise<Critic> {
  const { dtype } = policy.decoder;
  const own = config.valueBackbone === 'own';
  const backbone = own ? await loadModel(config.model, { dtype, device: policy.device }) : null;
  return new Critic(policy, backbone, config.seed);
}
