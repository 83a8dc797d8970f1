/**
 * The options of `attune train policy`. Options of an algorithm have no default here: each algorithm has its own, and
 * an option that it does not read is refused.
 */
import { z } from 'zod';
import { type PolicyAlgorithm, policyAlgorithm, policyAlgorithms, usesReference } from '../../algorithms/index.ts';
import { environmentNames } from '../../environments/index.ts';
import { checkEnvironments } from '../../environments/recipe.ts';
import { UserError } from '../../errors.ts';
import { cacheDtypes } from '../../models/index.ts';
import { cadenceFields, field, loraFields, optimizerFields, runFields, withRules } from '../../runs/index.ts';
import { taskNames } from '../../tasks/index.ts';
import { modelFields, quantTypeField, scoringPrecisionField } from '../fields.ts';
import { teacherFields } from '../teacher/options.ts';
import { algorithmFields, algorithmOf } from './algorithm-options.ts';
import { policyRules } from './rules.ts';

const group = {
  algorithm: 'Algorithm',
  prompts: 'Prompts',
  environment: 'Environment',
  reward: 'Reward',
  rollout: 'Rollouts',
  evaluation: 'Evaluation and checkpoints',
} as const;

const count = () => z.number().int().positive();
const share = () => z.number().min(0).max(1);
const amount = () => z.number().min(0);

const shape = z.object({
  ...runFields({ outputDir: './checkpoints/grpo', logDir: './logs/grpo' }),
  ...modelFields({ model: 'Qwen/Qwen3-0.6B' }),
  algorithm: field(z.string().default('grpo'), {
    description: `one of ${policyAlgorithms.map(({ name }) => name).join(', ')}`,
    names: policyAlgorithms.map(({ name }) => name),
    group: group.algorithm,
    aliases: ['method', 'loss'],
    fixed: 'value',
    meaning: (value) => policyAlgorithm(String(value)).name,
  }),
  ...algorithmFields(),
  nMinibatches: field(count().default(1), {
    description: "optimiser updates that a step's rollouts are split into",
    group: group.algorithm,
  }),
  klTarget: field(z.number().positive().default(6), {
    description: 'KL of a whole response that adaptive-kl steers towards',
    group: group.algorithm,
  }),
  valueBackbone: field(z.enum(['shared', 'own']).default('shared'), {
    description: "value head on the policy's own hidden states, or on a second copy of the model",
    group: group.algorithm,
    fixed: 'value',
  }),
  refModel: field(z.string().optional(), {
    description: 'reference model; the starting model when left out',
    group: group.algorithm,
    aliases: ['refModelId'],
    fixed: 'model',
  }),
  refQuantType: quantTypeField('hold the blocks of the reference in 8 or 4 bits', group.algorithm),
  ...teacherFields(group.algorithm),
  oldLogprobs: field(z.enum(['sampler', 'trainer']).default('sampler'), {
    description: 'lpOld as sampled, or recomputed by the trainer before the first update (the ratio is then exactly 1)',
    group: group.algorithm,
    fixed: 'value',
  }),
  maxSamplerGap: field(z.number().positive().optional(), {
    description:
      'largest |lp − lpOld| with unchanged weights; 1e-3 in float32, 2 in bfloat16 or with a cache in 8 bits (mean 0.05) when left out',
    group: group.algorithm,
  }),

  task: field(z.string().optional(), {
    description: 'verifiable tasks as prompts and reward',
    names: taskNames,
    group: group.prompts,
    examples: ['chain_sum:1*2,gcd'],
  }),
  curriculum: field(z.boolean().default(false), {
    description: "raise a task's or an environment's difficulty within its range as its success rate grows",
    group: group.prompts,
  }),
  curriculumUp: field(share().default(0.8), {
    description: 'success rate at which a task gets harder',
    group: group.prompts,
  }),
  curriculumDown: field(share().default(0.2), { description: 'and below which it gets easier', group: group.prompts }),
  dataset: field(z.string().optional(), { description: 'file, folder or hub name with prompts', group: group.prompts }),
  subset: field(z.string().optional(), { description: 'subset of a hub dataset', group: group.prompts }),
  trainPrompts: field(z.number().int().min(0).optional(), {
    description: "prompts from the dataset's train part; all when left out",
    group: group.prompts,
  }),
  testPrompts: field(z.number().int().min(0).default(0), {
    description: 'prompts from its test part that are trained on as well',
    group: group.prompts,
  }),
  promptMaxLength: field(count().default(1536), {
    description: 'tokens; longer prompts are left out',
    group: group.prompts,
  }),
  promptFormat: field(z.enum(['auto', 'chat', 'transcript', 'raw']).default('auto'), {
    description: 'how a prompt becomes text; auto is the chat template where the tokenizer has one',
    group: group.prompts,
  }),
  system: field(z.string().optional(), { description: 'system message before every prompt', group: group.prompts }),
  templateVariables: field(z.record(z.string(), z.unknown()).optional(), {
    description: 'variables of the chat template, such as enable_thinking',
    group: group.prompts,
    fileOnly: true,
  }),

  env: field(z.string().optional(), {
    description: `environment that the policy acts in, turn by turn, and that gives the reward: ${environmentNames.join(', ')}, or a module of yours`,
    names: environmentNames,
    group: group.environment,
    examples: ['guess:1-3', './my-env.ts'],
    aliases: ['environment'],
  }),
  agent: field(z.string().optional(), {
    description:
      "module with your own agent: its code calls the policy through OpenAI's API, at an address that it is given, and returns the reward",
    group: group.environment,
    examples: ['./my-agent.ts', './my-agent.ts:1-3'],
  }),
  maxTurns: field(count().default(10), {
    description: 'most turns of the policy in an episode; the episode then ends',
    group: group.environment,
  }),
  toolTimeout: field(z.number().positive().default(60), {
    description: 'seconds that the environment may take for a step, or the agent until its next call',
    group: group.environment,
  }),

  rewardModelPath: field(z.string().optional(), {
    description: 'trained reward model',
    group: group.reward,
    fixed: 'model',
  }),
  rmQuantType: quantTypeField('hold the blocks of the reward model in 8 or 4 bits', group.reward),
  rmPrecision: scoringPrecisionField(group.reward),
  rewardModule: field(z.string().optional(), {
    description: 'TypeScript or JavaScript module with a reward function',
    group: group.reward,
    examples: ['./my-reward.ts'],
    fixed: 'file',
  }),
  rewardWeights: field(z.array(z.string()).optional(), {
    description: 'weights of the rewards, 1 each when left out; a part that is named has its own',
    group: group.reward,
    examples: ['verifier=1,format=0.2'],
    fixed: 'value',
    meaning: (value) => ((value ?? []) as string[]).filter((weight) => !/^(reward_model|verifier)[=:]1$/.test(weight)),
  }),
  verifierReward: field(z.boolean().optional(), {
    description:
      "reward right responses, by a task's verifier or a dataset's known answers; on unless another reward is named",
    group: group.reward,
    fixed: 'value',
    // If no other reward was saved, a calling program may have passed one, so the old value is unknown.
    meaning: (value, saved) => value ?? ((saved.reward_model_path ?? saved.reward_module) ? false : undefined),
  }),
  formatReward: field(z.boolean().default(false), {
    description: 'add a reward of up to 0.2 for <think>…</think><answer>…</answer>',
    group: group.reward,
    fixed: 'value',
  }),
  rewardTimeout: field(z.number().positive().default(60), {
    description: 'seconds that a reward module may take for a batch',
    group: group.reward,
  }),
  onRewardError: field(z.enum(['stop', 'score']).default('stop'), {
    description:
      'on an exception in a reward module, environment or agent: stop the run, or score the sample 0 (an episode keeps its reward so far)',
    group: group.reward,
  }),
  rewardNormalization: field(z.enum(['none', 'batch', 'running']).default('none'), {
    description: 'scores to mean 0 and spread 1, over the step or over the run so far',
    group: group.reward,
    aliases: ['rewardNormalisation'],
    fixed: 'value',
  }),
  eosPenalty: field(amount().default(1), {
    description: 'subtracted where a response was cut at max-new-tokens',
    group: group.reward,
  }),

  ...optimizerFields({ batchSize: 2, lr: 1e-6, gradAccum: 4, maxGradNorm: 1 }),
  batchSize: field(count().default(2), {
    description: 'prompts of a step, times grad-accum; each is answered group-size times',
    group: 'Optimiser',
  }),
  gradAccum: field(count().default(4), {
    description: 'multiplies batch-size: the prompts of a step',
    group: 'Optimiser',
    aliases: ['gradAccumSteps', 'gradientAccumulationSteps'],
  }),
  maxSteps: field(count().optional(), {
    description: 'steps in all; epochs over the dataset, or 500 with endless tasks and environments, when left out',
    group: 'Optimiser',
    aliases: ['steps'],
  }),
  microBatchTokens: field(count().default(16384), {
    description: 'tokens that go through the model at once in training',
    group: 'Optimiser',
  }),

  groupSize: field(count().default(8), {
    description: 'responses per prompt',
    group: group.rollout,
    aliases: ['numRollouts'],
  }),
  maxNewTokens: field(count().default(512), {
    description:
      'maximum tokens of a response; with --env of a whole episode, with --agent of a conversation, observations included',
    group: group.rollout,
  }),
  temperature: field(z.number().positive().default(1), { description: 'of sampling', group: group.rollout }),
  topP: field(z.number().positive().max(1).default(1), {
    description: 'nucleus sampling; 1 = off, which the losses assume',
    group: group.rollout,
  }),
  topK: field(z.number().int().min(0).default(0), {
    description: 'most likely tokens only; 0 = off',
    group: group.rollout,
  }),
  minP: field(share().default(0), {
    description: 'tokens of at least this share of the best; 0 = off',
    group: group.rollout,
  }),
  truncatedRatio: field(z.boolean().default(false), {
    description: 'with top-p, top-k or min-p: take ratios against the truncated sampling distribution',
    group: group.rollout,
    fixed: 'value',
  }),
  rolloutSlots: field(count().optional(), {
    description: 'responses sampled at the same time; 32 on a CPU, 128 on a GPU when left out',
    group: group.rollout,
  }),
  cacheDtype: field(z.enum(cacheDtypes).default('model'), {
    description:
      "how the sampler holds keys and values: in the model's dtype, or in 8 bits (half the memory of bfloat16, faster rollouts on a GPU; the sampler's gap grows a little)",
    group: group.rollout,
  }),
  maxSamplingRounds: field(count().default(3), {
    description: 'if equal groups are dropped: most batches of prompts sampled to fill a step',
    group: group.rollout,
  }),
  saveRollouts: field(z.boolean().default(true), { description: 'write rollouts.db', group: group.rollout }),
  saveTokens: field(z.boolean().default(false), {
    description: 'write token ids and per-token log-probs too, which attune replay needs',
    group: group.rollout,
  }),
  rolloutsDir: field(z.string().optional(), {
    description: 'folder for rollouts.db; the run folder',
    group: group.rollout,
  }),

  ...cadenceFields({ evalSteps: 50, saveSteps: 500, metric: 'eval/reward' }),
  evalNumPrompts: field(z.number().int().min(0).default(128), {
    description: 'held-out prompts, answered greedily',
    group: group.evaluation,
  }),
  evalAtStart: field(z.boolean().default(true), {
    description: 'evaluate before the first step too',
    group: group.evaluation,
  }),
  evalSamples: field(z.number().int().min(0).default(0), {
    description: 'also sample this many responses to each, for pass@k; 0 = none',
    group: group.evaluation,
  }),
  ...loraFields({ dropout: 0 }),
});

/** The options of `trainPolicy`, with descriptions and defaults. */
export const policySchema = withRules(shape, policyRules);

/** The options of `trainPolicy`, with defaults filled in. */
export type PolicyConfig = z.output<typeof policySchema>;
export type PolicyInput = z.input<typeof policySchema>;

/** Whether a group of one has no baseline, so that it never gives a gradient. */
function comparesWithinGroup({ advantage, keeps }: PolicyAlgorithm): boolean {
  return keeps === 'best' || ['leave-one-out', 'group-z', 'group-centred', 'max-rl'].includes(advantage);
}

export function checkRewardModel(config: Pick<PolicyConfig, 'rmQuantType' | 'rmPrecision' | 'rewardModelPath'>): void {
  const { rmQuantType, rmPrecision, rewardModelPath } = config;
  if (rewardModelPath !== undefined) return;
  if (rmQuantType !== undefined)
    throw new UserError(
      `--rm-quant-type ${rmQuantType}: there is no reward model to quantise; name one with --reward-model-path.`,
    );
  if (rmPrecision !== undefined)
    throw new UserError(
      `--rm-precision ${rmPrecision}: there is no reward model that scores; name one with --reward-model-path.`,
    );
}

/** Refuses more than one source of prompts. */
export function checkPromptSource(
  config: { task?: string; dataset?: string; env?: string; agent?: string },
  rowsGiven = false,
): void {
  const hasDataset = rowsGiven || config.dataset !== undefined;
  const played = config.agent ?? config.env;
  const flag = config.agent === undefined ? '--env' : '--agent';
  const other = [
    ...(config.task === undefined ? [] : ['--task']),
    ...(hasDataset ? ['--dataset'] : []),
    ...(config.agent === undefined || config.env === undefined ? [] : ['--env']),
  ];
  if (played !== undefined && other.length > 0)
    throw new UserError(`Prompts come from one place: ${flag} brings its own, so leave ${other[0]} out.`);
  if (played !== undefined) {
    checkEnvironments(played, config.agent === undefined ? 'environment' : 'agent');
    return;
  }
  if (config.task !== undefined && hasDataset)
    throw new UserError('Prompts come from --task or from --dataset, not from both.');
  if (config.task === undefined && !hasDataset)
    throw new UserError(
      'There are no prompts: name tasks with --task (attune tasks lists them), a set with --dataset, an environment with --env, or an agent with --agent.',
    );
}

/** Checks that involve several fields. */
export function checkPolicyConfig(config: PolicyConfig, rowsGiven = false): void {
  checkPromptSource(config, rowsGiven);
  checkRewardModel(config);
  const { algorithm, options } = algorithmOf(config);
  if (config.refQuantType !== undefined && !usesReference(algorithm, options))
    throw new UserError(
      `--ref-quant-type ${config.refQuantType}: there is no reference to quantise, since the KL to it has no weight (--kl-coef).`,
    );
  if (algorithm.needsTeacher && config.teacher === undefined)
    throw new UserError(
      `${algorithm.name} learns from a teacher: name a model with the same tokenizer that is better at it with --teacher.`,
    );
  if (config.groupSize < 2 && comparesWithinGroup(algorithm))
    throw new UserError(`${algorithm.name} compares the responses to one prompt: --group-size must be 2 or more.`);
  if (config.curriculum && (config.task ?? config.env ?? config.agent) === undefined)
    throw new UserError(
      '--curriculum moves through difficulties of tasks: it needs --task (or --env, or --agent) with a range, such as gcd:1-3.',
    );
  const { curriculumUp: up, curriculumDown: down } = config;
  if (config.curriculum && up < down)
    throw new UserError(
      `--curriculum-up ${up}, --curriculum-down ${down}: a task gets harder from the first on and easier below the second, so the first must not be the smaller.`,
    );
}
