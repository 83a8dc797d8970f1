/** `attune evaluate policy`: evaluates a policy on held-out prompts, alone or against another. */
import { basename, dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { joinWorld } from '../dist/world.ts';
import { AttuneError, UserError } from '../errors.ts';
import { evaluatePolicy } from '../evaluate/policy.ts';
import { type PolicyEvaluationHeading, summaryRows, writePolicyEvaluation } from '../evaluate/policy-report.ts';
import { resolveModel } from '../hub/hub.ts';
import { deviceOf, dtypeOf, loadModel, loadTokenizer } from '../models/index.ts';
import { heldOutPrompts, openedEnvironments } from '../rollouts/opening.ts';
import type { PolicyPrompt } from '../rollouts/prompts.ts';
import { type ConfiguredScorer, configuredScorer, judgeHeading } from '../rollouts/scorer.ts';
import { countTrainedOn } from '../rollouts/trained-prompts.ts';
import { checkpointConfig, field, inheritedRules, readJson, resolveConfig, withRules } from '../runs/index.ts';
import type { Tokenizer } from '../text/index.ts';
import { checkPolicyConfig, policySchema } from '../trainers/policy/config.ts';
import { registerCommand } from './options/command.ts';
import { cacheDtypeField } from './options/model-fields.ts';
import { checkOutputFolder, noteReplaced } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

const shape = policySchema.shape;
const group = 'Evaluation';

const options = z.object({
  model: shape.model,
  tokenizer: shape.tokenizer,
  dtype: shape.dtype,
  device: shape.device,
  reference: field(z.string().optional(), { description: 'model that the KL is measured against', group }),
  opponent: field(z.string().optional(), {
    description: 'another policy: win rate by the same reward on the same prompts',
    group,
    aliases: ['against'],
  }),
  numPrompts: field(z.number().int().positive().default(128), {
    description: 'held-out prompts; of a dataset those that a run with this --eval-num-prompts and --seed holds out',
    group,
  }),
  samples: field(z.number().int().min(0).default(8), { description: 'sampled responses to each, for pass@k', group }),
  outputDir: field(z.string().default('./evaluation'), { description: 'folder for JSON, picture and page', group }),
  task: shape.task,
  env: shape.env,
  agent: shape.agent,
  maxTurns: shape.maxTurns,
  toolTimeout: shape.toolTimeout,
  dataset: shape.dataset,
  subset: shape.subset,
  promptMaxLength: shape.promptMaxLength,
  promptFormat: shape.promptFormat,
  system: shape.system,
  rewardModelPath: shape.rewardModelPath,
  rmQuantType: shape.rmQuantType,
  rmPrecision: shape.rmPrecision,
  rewardModule: shape.rewardModule,
  rewardWeights: shape.rewardWeights,
  verifierReward: shape.verifierReward,
  formatReward: shape.formatReward,
  maxNewTokens: shape.maxNewTokens,
  temperature: shape.temperature,
  topP: shape.topP,
  seed: shape.seed,
  cacheDtype: cacheDtypeField,
});

type Config = z.output<typeof options>;

/** The prompts, rewards and sampling of a policy run that only evaluates. */
function asPolicy({ numPrompts, samples: _, reference: __, opponent: ___, outputDir: ____, ...rest }: Config) {
  return resolveConfig(policySchema, { flags: { ...rest, evalNumPrompts: numPrompts, evalSteps: 1 } }).config;
}

const unsampled = 'nothing is sampled: the greedy response alone is judged (--samples 0)';

export const evaluatePolicySchema = withRules(options, [
  ...inheritedRules(options, policySchema, asPolicy),
  { options: ['topP'], unread: ({ samples }) => samples === 0, because: unsampled },
  {
    options: ['temperature'], // the KL to a reference reads it too
    unread: ({ samples, reference }) => samples === 0 && reference === undefined,
    because: unsampled,
  },
]);

export function registerEvaluatePolicy(evaluate: Command): void {
  registerCommand(evaluate, {
    name: 'policy',
    description: 'rewards, accuracy and pass@k on held-out prompts, KL to a reference, win rate against another policy',
    schema: evaluatePolicySchema,
    examples: [
      'attune evaluate policy --model checkpoints/grpo/run --task number_sorting:1 --reference models/tiny --opponent models/tiny',
      'attune evaluate policy --model checkpoints/grpo/run --env guess:1',
      'attune evaluate policy --model checkpoints/grpo/run --agent ./my-agent.ts',
    ],
    run,
  });
}

async function run(config: Config): Promise<void> {
  const { samples, reference, opponent, outputDir } = config;
  checkOutputFolder('--output-dir', outputDir);
  using interrupt = onInterrupt();
  const policy = asPolicy(config);
  checkPolicyConfig(policy);
  const device = deviceOf(config.device);
  const dtype = dtypeOf(config.dtype, device);
  const progress = consoleProgress();
  const tokenizer = await loadTokenizer(config, progress);
  using loaded = new DisposableStack();
  const load = async (option: string, name: string) => {
    const model = loaded.use(await loadModel(name, { device, dtype, progress }));
    if (model.head === null) return model;
    throw new UserError(`${option} ${name} is a reward model, not a policy; judge it with attune evaluate reward.`);
  };
  const model = await load('--model', config.model);
  const frozen = reference === undefined ? undefined : await load('--reference', reference);
  const rival =
    opponent === undefined
      ? undefined
      : { model: await load('--opponent', opponent), tokenizer: await loadTokenizer({ model: opponent }, progress) };
  using environments = await openedEnvironments(policy);
  const prompts = await heldOutPrompts(policy, tokenizer, { progress, environments });
  const trainedOn = await trainedOnBy(config.model, prompts, tokenizer);
  const scorer = await configuredScorer(policy, { device, prompts });
  const evaluation = await evaluatePolicy({
    model,
    tokenizer,
    prompts,
    scorer,
    samples,
    reference: frozen,
    opponent: rival,
    maxNewTokens: config.maxNewTokens,
    maxTurns: config.maxTurns,
    toolTimeout: config.toolTimeout,
    promptMaxLength: config.promptMaxLength,
    temperature: config.temperature,
    topP: config.topP,
    seed: config.seed,
    cacheDtype: config.cacheDtype,
    format: config.promptFormat,
    progress,
    signal: interrupt.signal,
  });
  if (!(await joinWorld()).isFirst) return;
  noteReplaced(outputDir, 'policy_evaluation.json');
  await writePolicyEvaluation(
    outputDir,
    evaluation,
    policyNames(config.model, opponent),
    headingOf(config, scorer, trainedOn),
  );
  for (const [name, value] of summaryRows(evaluation.summary)) print(`${name.padEnd(22)}${value}`);
  if (trainedOn)
    tell(
      `Note: ${trainedOn} of these ${prompts.length} prompts are among those that ${config.model} trains on: its own --seed and --eval-num-prompts say which it holds out.`,
    );
  print(`\nwritten to ${shown(resolve(outputDir))}`);
}

/** How many prompts the model's own run trains on; undefined where it is no policy run, or its data are gone or on a hub that does not answer. */
async function trainedOnBy(model: string, prompts: readonly PolicyPrompt[], tokenizer: Tokenizer) {
  const path = await resolveModel(model);
  const run = dirname(path);
  if (readJson<{ command?: string }>(join(run, 'run.json'))?.command !== 'train policy') return undefined;
  try {
    const { config } = resolveConfig(policySchema, { checkpoint: checkpointConfig({ path, run }) });
    return await countTrainedOn(config, prompts, tokenizer);
  } catch (error) {
    if (error instanceof AttuneError) return undefined;
    throw error;
  }
}

function headingOf(config: Config, scorer: ConfiguredScorer, trainedOn: number | undefined): PolicyEvaluationHeading {
  const { model, reference, opponent, task, env, agent, dataset, samples, temperature, topP } = config;
  return {
    ...{ model, reference, opponent, task, env, agent, dataset, trained_on: trainedOn },
    ...judgeHeading(config, scorer),
    ...(samples > 0 && { sampling: { samples, temperature, top_p: topP } }),
    max_new_tokens: config.maxNewTokens,
    cache_dtype: config.cacheDtype,
    seed: config.seed,
  };
}

/**
 * The names of the two policies in reports: the run's name for a checkpoint, or the whole path if both names are equal.
 */
export function policyNames(policy: string, opponent?: string): { policy: string; opponent?: string } {
  const named = (path: string) => {
    const name = basename(resolve(path));
    return /^(final|best_model|(step|checkpoint)-\d+)$/.test(name) ? basename(resolve(path, '..')) : name;
  };
  if (opponent === undefined) return { policy: named(policy) };
  if (named(policy) === named(opponent)) return { policy, opponent };
  return { policy: named(policy), opponent: named(opponent) };
}
