/** The options of `attune preferences build`. Options of another kind are refused by name. */
import { z } from 'zod';
import { UserError } from '../../errors.ts';
import { field, inheritedRules, resolveConfig, withRules } from '../../runs/index.ts';
import { checkPromptSource, checkRewardModel, policySchema } from '../../trainers/policy/config.ts';

const positive = () => z.number().int().positive();
const group = 'Data';

const rowKinds = ['pairs', 'graded', 'steps'] as const;
export type RowKind = (typeof rowKinds)[number];

const options = policySchema
  .pick({
    model: true,
    tokenizer: true,
    dtype: true,
    device: true,
    task: true,
    dataset: true,
    subset: true,
    promptMaxLength: true,
    promptFormat: true,
    system: true,
    templateVariables: true,
    rewardModelPath: true,
    rmQuantType: true,
    rmPrecision: true,
    rewardModule: true,
    rewardWeights: true,
    verifierReward: true,
    formatReward: true,
    rewardTimeout: true,
    onRewardError: true,
    maxNewTokens: true,
    temperature: true,
    topP: true,
    topK: true,
    minP: true,
    seed: true,
  })
  .extend({
    kind: field(z.enum(rowKinds).default('pairs'), {
      description:
        'pairs for train preference; graded solutions for train reward --type outcome; labelled steps for --type process',
      group,
    }),
    prompts: field(positive().default(256), { description: 'prompts to sample from', group }),
    samples: field(positive().default(8), { description: 'responses per prompt', group, aliases: ['groupSize'] }),
    pairs: field(z.enum(['best-worst', 'all']).optional(), {
      description: 'pairs: one per prompt (best-worst, when left out), or all whose scores differ',
      group,
    }),
    minGap: field(z.number().min(0).optional(), {
      description: 'pairs: leave out pairs whose scores differ by this or less; 0 when left out',
      group,
    }),
    continuations: field(positive().optional(), {
      description: 'steps: responses continued from the end of each step; 4 when left out',
      group,
    }),
    stepThreshold: field(z.number().gt(0).max(1).optional(), {
      description: 'steps: a step is right if this share of its continuations is; any one when left out',
      group,
    }),
    stepSeparator: field(z.string().min(1).optional(), {
      description: 'steps: text between the steps of a response; a new line when left out',
      group,
    }),
    batchPrompts: field(positive().default(32), { description: 'prompts sampled at the same time', group }),
    output: field(z.string().default('./preferences.jsonl'), {
      description: 'file to write',
      group,
      aliases: ['outputFile'],
    }),
    overwrite: field(z.boolean().default(false), { description: 'replace an existing file', group }),
  });

/** The prompts, rewards and sampling of a policy run without training. */
function asPolicy(config: z.output<typeof options>) {
  const shared = Object.entries(config).filter(([name, value]) => name in policySchema.shape && value !== undefined);
  return resolveConfig(policySchema, { flags: Object.fromEntries(shared) }).config;
}

export const buildPreferencesSchema = withRules(options, [
  ...inheritedRules(options, policySchema, asPolicy),
  {
    options: [
      ...(['pairs', 'minGap', 'rewardModelPath', 'rmQuantType', 'rmPrecision', 'rewardModule'] as const),
      ...(['rewardWeights', 'verifierReward', 'formatReward'] as const),
    ],
    unread: ({ kind }) => kind !== 'pairs',
    because: 'what is right is told by the verifier of --task or by known answers; rewards are for --kind pairs',
  },
  {
    options: ['continuations', 'stepThreshold', 'stepSeparator'],
    unread: ({ kind }) => kind !== 'steps',
    because: 'it is for --kind steps',
  },
]);

/** The options of `buildPreferences`, with defaults filled in. */
export type BuildPreferencesConfig = z.output<typeof buildPreferencesSchema>;

/** Checks that involve several fields. `rowsGiven`: a program passed the prompts. */
export function checkBuild(config: BuildPreferencesConfig, rowsGiven: boolean): void {
  checkPromptSource(config, rowsGiven);
  checkRewardModel(config);
  if (config.kind === 'pairs' && config.samples < 2)
    throw new UserError('A pair needs two responses: --samples must be 2 or more.');
}
