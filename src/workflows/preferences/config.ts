/** The options of `attune preferences build`; options of another kind are refused by name. */
import { z } from 'zod';
import { UserError } from '../../errors.ts';
import { field, kebabCase } from '../../runs/index.ts';
import { checkRewardModel, policySchema } from '../../trainers/policy/config.ts';

const positive = () => z.number().int().positive();
const group = 'Data';

const rowKinds = ['pairs', 'graded', 'steps'] as const;
export type RowKind = (typeof rowKinds)[number];

export const buildPreferencesSchema = policySchema
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
      description: 'pairs: one of each prompt (best-worst, when left out), or every one whose scores differ',
      group,
    }),
    minGap: field(z.number().min(0).optional(), {
      description: 'pairs: leave out those whose scores differ by no more than this; 0 when left out',
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
  });

/** The options of `buildPreferences`, with defaults filled in. */
export type BuildPreferencesConfig = z.output<typeof buildPreferencesSchema>;

type Name = keyof BuildPreferencesConfig;

const ofPairs: Name[] = ['pairs', 'minGap', 'rewardModelPath', 'rmQuantType', 'rewardModule', 'rewardWeights'];
const ofRewards: Name[] = ['verifierReward', 'formatReward'];
const ofSteps: Name[] = ['continuations', 'stepThreshold', 'stepSeparator'];

/** Faults that concern several fields. */
export function checkBuild(config: BuildPreferencesConfig): void {
  checkRewardModel(config);
  const unread =
    config.kind === 'pairs' ? ofSteps : [...ofPairs, ...ofRewards, ...(config.kind === 'graded' ? ofSteps : [])];
  const given = unread.filter((name) => config[name] !== undefined && config[name] !== false);
  if (given.length > 0) {
    const names = given.map((name) => `--${kebabCase(name)}`).join(', ');
    const reason = config.kind === 'pairs' ? 'belongs to --kind steps' : `has no effect with --kind ${config.kind}`;
    const why =
      config.kind === 'pairs' ? '' : ' Right and wrong are told by the verifier of --task or by known answers.';
    throw new UserError(`${names} ${reason}.${why}`);
  }
  if (config.kind === 'pairs' && config.samples < 2)
    throw new UserError('A pair needs two responses: --samples must be 2 or more.');
}
