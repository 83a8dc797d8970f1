/**
 * The options that a policy run would not read, given its other options. Options that the algorithm does not read are
 * refused by `policyOptions`.
 */
import { usesReference, usesTeacherKl } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import type { UnreadRule } from '../../runs/index.ts';
import { bestRules, cadenceRules, loraRules } from '../rules.ts';
import { type AlgorithmConfig, algorithmOf } from './algorithm-options.ts';

/** The options that the rules read. */
type Config = AlgorithmConfig &
  Parameters<(typeof cadenceRules)[number]['unread']>[0] &
  Parameters<(typeof loraRules)[number]['unread']>[0] & {
    nMinibatches: number;
    klTarget: number;
    valueBackbone: string;
    teacher?: string;
    teacherQuantType?: string;
    eosPenalty: number;
    rewardNormalization: string;
    refModel?: string;
    task?: string;
    env?: string;
    agent?: string;
    system?: string;
    maxTurns: number;
    toolTimeout: number;
    rewardModelPath?: string;
    rewardWeights?: readonly string[];
    dataset?: string;
    epochs: number;
    maxSteps?: number;
    curriculum: boolean;
    curriculumUp: number;
    curriculumDown: number;
    subset?: string;
    trainPrompts?: number;
    testPrompts: number;
    rewardModule?: string;
    rewardTimeout: number;
    onRewardError: string;
    formatReward: boolean;
    verifierReward?: boolean;
    batchSize: number;
    gradAccum: number;
    groupSize: number;
    maxSamplingRounds: number;
    saveRollouts: boolean;
    saveTokens: boolean;
    rolloutsDir?: string;
    evalNumPrompts: number;
    evalAtStart: boolean;
    evalSamples: number;
    topP: number;
    topK: number;
    minP: number;
    truncatedRatio: boolean;
  };

const comparesWithReference = (config: Config) => {
  const { algorithm, options } = algorithmOf(config);
  return usesReference(algorithm, options);
};

const comparesWholeVocabulary = (config: Config) => {
  const { algorithm, options } = algorithmOf(config);
  return usesTeacherKl(algorithm, options);
};

const rolloutsOfStep = ({ batchSize, gradAccum, groupSize }: Config) => batchSize * gradAccum * groupSize;

export const policyRules: readonly UnreadRule<Config>[] = [
  ...cadenceRules,
  ...bestRules,
  ...loraRules,
  {
    options: ['loraDropout'],
    unread: ({ loraDropout }) => loraDropout > 0,
    because: 'the trainer must give tokens the probabilities that the sampler drew them with, so nothing is dropped',
  },
  {
    options: ['cliprange'],
    unread: ({ clipLow, clipHigh }) => clipLow !== undefined && clipHigh !== undefined,
    because: '--clip-low and --clip-high decide',
  },
  {
    options: ['refModel', 'klEstimator', 'klTimesRatio', 'adaptiveKl'],
    unread: (config) => !comparesWithReference(config),
    because: 'the KL to a reference has no weight (--kl-coef)',
  },
  {
    options: ['klTarget'],
    unread: (config) => !algorithmOf(config).options.adaptiveKl,
    because: '--kl-coef is steered towards it only with --adaptive-kl',
  },
  {
    options: ['valueBackbone'],
    unread: (config) => !algorithmOf(config).algorithm.needsValue,
    because: ({ algorithm }) => `${algorithm} learns no value`,
  },
  {
    options: ['teacher', 'teacherQuantType'],
    unread: (config) => !algorithmOf(config).algorithm.needsTeacher,
    because: ({ algorithm }) => `${algorithm} learns from rewards; --algorithm opd learns from a teacher`,
  },
  {
    options: ['eosPenalty', 'rewardNormalization'],
    unread: (config) => algorithmOf(config).algorithm.needsTeacher,
    because: ({ algorithm }) => `${algorithm} learns from its teacher, and rewards are only measured`,
  },
  {
    options: ['truncatedRatio'],
    unread: (config) => comparesWholeVocabulary(config),
    because: 'the KL over the whole vocabulary has no ratio (--distill-as advantage has)',
  },
  {
    options: ['targetKl'],
    unread: (config) => algorithmOf(config).options.ppoEpochs * config.nMinibatches === 1,
    because: "a step's rollouts are used once; it ends further passes (--ppo-epochs, --n-minibatches)",
  },
  {
    options: ['nMinibatches'],
    unread: (config) => config.nMinibatches > rolloutsOfStep(config),
    because: (config) =>
      `a step has ${rolloutsOfStep(config)} rollouts, which is the most parts that they can be split into`,
  },
  {
    options: ['maxSamplingRounds'],
    unread: (config) => !algorithmOf(config).options.dropEqualGroups,
    because: 'a step is sampled again only where groups are left out (--drop-equal-groups)',
  },
  {
    options: ['curriculumUp', 'curriculumDown'],
    unread: ({ curriculum }) => !curriculum,
    because: 'difficulties move only with --curriculum',
  },
  {
    options: ['subset', 'trainPrompts', 'testPrompts'],
    unread: ({ task, env, agent }) => (task ?? env ?? agent) !== undefined,
    because: ({ env, agent }) =>
      `prompts come from ${(agent && '--agent') ?? (env && '--env') ?? '--task'}, which makes them as they are needed`,
  },
  {
    options: ['epochs'],
    unread: ({ task, env, agent, maxSteps }) => (task ?? env ?? agent) !== undefined || maxSteps !== undefined,
    because: ({ task, env, agent }) => {
      if (agent !== undefined) return 'agents are endless; --max-steps says how many steps';
      if (env !== undefined) return 'environments are endless; --max-steps says how many steps';
      return task === undefined ? '--max-steps decides' : 'tasks are endless; --max-steps says how many steps';
    },
  },
  {
    options: ['rewardModelPath', 'rewardModule', 'rewardWeights', 'verifierReward', 'formatReward'],
    by: 'env',
    unread: ({ env, agent }) => (env ?? agent) !== undefined,
    because: ({ agent }) =>
      agent === undefined ? 'the environment gives the reward (--env)' : 'the agent gives the reward (--agent)',
  },
  {
    options: ['maxTurns', 'toolTimeout'],
    unread: ({ env, agent }) => (env ?? agent) === undefined,
    because: 'there is no --env and no --agent',
  },
  {
    options: ['system'],
    by: 'agent',
    unread: ({ agent }) => agent !== undefined,
    because: 'an agent writes all its messages itself (--agent)',
  },
  {
    options: ['rewardTimeout'],
    unread: ({ rewardModule }) => rewardModule === undefined,
    because: 'there is no --reward-module',
  },
  {
    options: ['onRewardError'],
    unread: ({ rewardModule, env, agent }) => (rewardModule ?? env ?? agent) === undefined,
    because: 'there is no --reward-module, no --env and no --agent',
  },
  {
    options: ['formatReward'],
    unread: ({ task, env, agent, verifierReward }) =>
      (env ?? agent) === undefined && (task === undefined || verifierReward === false),
    because: 'it is a part of the verifier of --task, which is not used',
  },
  {
    options: ['saveTokens', 'rolloutsDir'],
    unread: ({ saveRollouts }) => !saveRollouts,
    because: 'no rollouts are saved',
  },
  {
    options: ['evalNumPrompts', 'evalAtStart', 'evalSamples'],
    unread: ({ evalSteps }) => evalSteps <= 0,
    because: 'nothing is evaluated with --eval-steps -1',
  },
  {
    options: ['evalAtStart', 'evalSamples', 'metricForBestModel', 'earlyStoppingPatience', 'loadBestModelAtEnd'],
    unread: ({ evalNumPrompts }) => evalNumPrompts === 0,
    because: 'no prompts are held out with --eval-num-prompts 0',
  },
  {
    options: ['truncatedRatio'],
    unread: ({ topP, topK, minP }) => topP === 1 && topK === 0 && minP === 0,
    because: 'nothing is truncated without --top-p, --top-k or --min-p',
  },
];

/** Refuses to resume without the rewards that a program passed, or with others: the objective would change. */
export function checkGivenRewards(before: readonly string[] | undefined, now: readonly string[]): void {
  if (before === undefined || before.toSorted().join('\n') === now.toSorted().join('\n')) return;
  if (before.length === 0)
    throw new UserError(
      `The rewards ${now.join(', ')} are no part of what this run was trained on so far. Leave them out, or start a new run from the checkpoint with --model.`,
    );
  throw new UserError(
    `This run was trained on rewards of a program, which a checkpoint does not hold: ${before.join(', ')}. ` +
      `${now.length === 0 ? 'None is given now' : `Given now: ${now.join(', ')}`}. ` +
      'Go on from a program that hands them over: trainPolicy({ resumeFrom }, { rewards }).',
  );
}
