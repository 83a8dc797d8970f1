/** The options of `attune train reward`, with their defaults. */
import { z } from 'zod';
import { rewardTypes } from '../../rewards/index.ts';
import { cadenceFields, field, loraFields, optimizerFields, runFields, withRules } from '../../runs/index.ts';
import { dataFields, modelFields } from '../fields.ts';
import { cadenceRules, dataRules, loraRules } from '../rules.ts';

const group = 'Reward model';
const evaluation = 'Evaluation and checkpoints';
const positive = () => z.number().int().positive();

const shape = z.object({
  type: field(z.enum(rewardTypes).default('preference'), {
    description: 'pairs (Bradley–Terry), graded solutions (ORM), or labelled steps (PRM)',
    group,
    fixed: 'value',
  }),
  margin: field(z.boolean().default(false), {
    description: "preference: use each pair's own margin in the loss; every pair must have one",
    group,
    fixed: 'value',
  }),
  labelSmoothing: field(z.number().min(0).max(0.5).default(0), {
    description: 'preference: probability that a pair is labelled the wrong way round',
    group,
  }),
  centring: field(z.number().min(0).default(0), {
    description: 'preference: c in c·(r_w + r_l)², which keeps scores around 0',
    group,
    aliases: ['centerRewardsCoefficient'],
  }),
  stripThinking: field(z.boolean().default(true), {
    description: 'take <think>…</think> out of the text that is scored',
    group,
    fixed: 'value',
  }),
  stepSeparator: field(
    z
      .string()
      .min(1)
      .default('\n')
      // a newline typed in a shell is the two characters \n
      .transform((text) => text.replaceAll('\\n', '\n')),
    { description: 'process: text that ends each step', group },
  ),
  dropTies: field(z.boolean().default(false), {
    description: 'preference: leave out pairs that are equal or were graded equal',
    group: 'Data',
  }),
  minResponseChars: field(z.number().int().min(0).default(0), {
    description: 'leave out responses shorter than this (10 is usual)',
    group: 'Data',
  }),
  ...modelFields({ model: 'Qwen/Qwen3-0.6B' }),
  ...dataFields(),
  maxSteps: field(positive().optional(), { description: 'end after this many steps', group: 'Optimiser' }),
  ...optimizerFields({ lr: 1e-5 }),
  ...cadenceFields({ metric: 'eval/accuracy' }),
  evalNumBatches: field(positive().default(32), {
    picksHeldOut: true,
    description: 'batches per evaluation, drawn with replacement; all held-out examples once where they are fewer',
    group: evaluation,
  }),
  evalBatchSize: field(positive().default(4), {
    picksHeldOut: true,
    description: 'examples per evaluation batch',
    group: evaluation,
  }),
  evalSeed: field(z.number().int().min(0).default(1234), {
    picksHeldOut: true,
    description: 'seed of the evaluation sample, the same at every evaluation',
    group: evaluation,
  }),
  analysisSamples: field(z.number().int().min(0).default(2000), {
    description: 'held-out examples in the error analysis at the end, 0 = none',
    group: evaluation,
  }),
  ...loraFields(),
  ...runFields({ outputDir: './checkpoints/rm', logDir: './logs/rm' }),
});

const preferenceOnly = ['margin', 'labelSmoothing', 'centring', 'dropTies'] as const;
const pairsOnly = ['chosenColumn', 'rejectedColumn'] as const;

/** The options of `trainReward`, with descriptions and defaults. */
export const rewardSchema = withRules(shape, [
  ...cadenceRules,
  ...loraRules,
  ...dataRules<z.output<typeof shape>>(['analysisSamples']),
  {
    options: [...preferenceOnly, ...pairsOnly],
    unread: ({ type }) => type !== 'preference',
    because: ({ type }) => `a reward model of --type ${type} has no pairs`,
  },
  {
    options: ['stepSeparator'],
    unread: ({ type }) => type !== 'process',
    because: ({ type }) => `only labelled steps have ends, and this is --type ${type}`,
  },
  {
    options: ['completionColumn', 'labelColumn'],
    unread: ({ type }) => type !== 'outcome',
    because: ({ type }) => `--type ${type} has no single graded responses`,
  },
  {
    options: ['textColumn'],
    unread: () => true,
    because: 'a reward model learns from prompts and responses, not from plain text',
  },
]);

/** The options of `trainReward`, with defaults filled in. */
export type RewardConfig = z.output<typeof rewardSchema>;
