/** `attune evaluate policy`: what a policy is worth on held-out prompts, alone and against another. */
import { basename, resolve } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { evaluatePolicy } from '../evaluate/policy.ts';
import { summaryRows, writePolicyEvaluation } from '../evaluate/policy-report.ts';
import { deviceOf, dtypeOf, loadModel, loadTokenizer } from '../models/index.ts';
import { heldOutPrompts } from '../rollouts/opening.ts';
import { configuredScorer } from '../rollouts/scorer.ts';
import { field, resolveConfig } from '../runs/index.ts';
import { checkPolicyConfig, policySchema } from '../trainers/policy/config.ts';
import { addSchemaOptions, schemaFlags } from './options/options.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print } from './terminal/print.ts';

const shape = policySchema.shape;
const group = 'Evaluation';

export const evaluatePolicySchema = z.object({
  ...{ model: shape.model, tokenizer: shape.tokenizer, dtype: shape.dtype, device: shape.device },
  reference: field(z.string().optional(), { description: 'model that the KL is measured against', group }),
  opponent: field(z.string().optional(), {
    description: 'another policy: win rate by the same reward on the same prompts',
    group,
    aliases: ['against'],
  }),
  numPrompts: field(z.number().int().positive().default(128), { description: 'held-out prompts', group }),
  samples: field(z.number().int().min(0).default(8), { description: 'sampled answers to each, for pass@k', group }),
  outputDir: field(z.string().default('./evaluation'), { description: 'folder for JSON, picture and page', group }),
  ...{ task: shape.task, dataset: shape.dataset, subset: shape.subset, promptMaxLength: shape.promptMaxLength },
  ...{ promptFormat: shape.promptFormat, system: shape.system },
  ...{ rewardModelPath: shape.rewardModelPath, rmQuantType: shape.rmQuantType },
  ...{ rewardModule: shape.rewardModule, rewardWeights: shape.rewardWeights },
  ...{ verifierReward: shape.verifierReward, formatReward: shape.formatReward },
  ...{ maxNewTokens: shape.maxNewTokens, temperature: shape.temperature, topP: shape.topP, seed: shape.seed },
});

export function registerEvaluatePolicy(evaluate: Command): void {
  const command = addSchemaOptions(
    evaluate
      .command('policy')
      .description(
        'rewards, accuracy and pass@k on held-out prompts, KL to a reference, win rate against another policy',
      ),
    evaluatePolicySchema,
  );
  command.addHelpText(
    'after',
    '\nExample:\n  attune evaluate policy --model checkpoints/grpo/run/final --task number_sorting:1 --reference models/tiny --opponent models/tiny',
  );
  command.action(async () => {
    const { config } = resolveConfig(evaluatePolicySchema, { flags: schemaFlags(command, evaluatePolicySchema) });
    using interrupt = onInterrupt();
    const { numPrompts, samples, reference, opponent, outputDir, ...rest } = config;
    const policy = resolveConfig(policySchema, { flags: { ...rest, evalNumPrompts: numPrompts, evalSteps: 1 } }).config;
    checkPolicyConfig(policy);
    const device = deviceOf(config.device);
    const dtype = dtypeOf(config.dtype, device);
    const tokenizer = await loadTokenizer(config);
    const prompts = await heldOutPrompts(policy, tokenizer);
    const scorer = await configuredScorer(policy, { device, prompts });
    const load = (name: string) => loadModel(name, { device, dtype });
    const model = await load(config.model);
    const frozen = reference === undefined ? undefined : await load(reference);
    const rival =
      opponent === undefined
        ? undefined
        : { model: await load(opponent), tokenizer: await loadTokenizer({ model: opponent }) };
    const evaluation = await evaluatePolicy({
      ...{ model, tokenizer, prompts, scorer, samples, reference: frozen, opponent: rival },
      ...{ maxNewTokens: config.maxNewTokens, temperature: config.temperature, topP: config.topP, seed: config.seed },
      format: config.promptFormat,
      progress: consoleProgress(),
      signal: interrupt.signal,
    });
    const named = (path: string) => (path.includes('/') ? basename(resolve(path, '..')) : path);
    const names = {
      policy: named(config.model),
      ...(opponent === undefined ? {} : { opponent: named(opponent) }),
    };
    await writePolicyEvaluation(outputDir, evaluation, names);
    for (const [name, value] of summaryRows(evaluation.summary)) print(`${name.padEnd(22)}${value}`);
    print(`\nwritten to ${shown(resolve(outputDir))}`);
  });
}
