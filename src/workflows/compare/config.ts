/** The options of `attune compare`, and the config of each method made from them. */
import { z } from 'zod';
import { policyAlgorithms, preferenceLosses } from '../../algorithms/index.ts';
import { suggestion, UserError } from '../../errors.ts';
import { field, inheritedRules, loraFields, optimizerFields, resolveConfig, withRules } from '../../runs/index.ts';
import { modelFields } from '../../trainers/fields.ts';
import { type PolicyConfig, policySchema } from '../../trainers/policy/config.ts';
import type { PreferenceConfigInput } from '../../trainers/preference/config.ts';
import { type Method, methodOptionFields, ownOptions } from './method-options.ts';

const shape = policySchema.shape;
const group = 'Comparison';
const count = () => z.number().int().positive();
const { epochs: _, ...optimizer } = optimizerFields({ batchSize: 2, lr: 1e-5, gradAccum: 2, maxGradNorm: 1 });

const options = z.object({
  methods: field(z.array(z.string()).min(1).default(['ppo', 'grpo', 'dpo']), {
    description: 'policy algorithms and preference losses, or "all"',
    group,
    aliases: ['method'],
    examples: ['ppo,grpo,dpo'],
  }),
  steps: field(count().default(100), { description: 'optimiser steps of each method', group }),
  maxSeconds: field(z.number().positive().optional(), {
    description: 'most seconds of training for each method',
    group,
  }),
  seeds: field(z.array(z.number().int().min(0)).min(1).default([42]), {
    description: 'each method runs once per seed; results are given as mean and spread',
    group,
    examples: ['1,2,3'],
  }),
  judgements: field(count().default(5), {
    description: 'how often each run is judged on the held-out prompts',
    group,
  }),
  evalNumPrompts: field(count().default(64), { description: 'held-out prompts, the same for all', group }),
  evalSamples: field(z.number().int().min(0).default(4), {
    description: 'sampled responses to each, for pass@k',
    group,
  }),
  outputDir: field(z.string().default('./comparison'), { description: 'folder for comparisons', group }),
  runName: field(z.string().optional(), {
    description: "name of this comparison's folder there; run_ with date and time when left out",
    group,
  }),
  groupSize: field(count().default(4), { description: 'responses per prompt', group }),
  preferenceLr: field(z.number().positive().optional(), {
    description: 'learning rate of the preference losses; lr when left out',
    group,
  }),
  ...methodOptionFields,
  ...modelFields({ model: 'Qwen/Qwen3-0.6B' }),
  task: shape.task,
  dataset: shape.dataset,
  subset: shape.subset,
  promptFormat: shape.promptFormat,
  promptMaxLength: shape.promptMaxLength,
  system: shape.system,
  rewardModelPath: shape.rewardModelPath,
  rewardModule: shape.rewardModule,
  rewardWeights: shape.rewardWeights,
  verifierReward: shape.verifierReward,
  formatReward: shape.formatReward,
  eosPenalty: shape.eosPenalty,
  maxNewTokens: shape.maxNewTokens,
  temperature: shape.temperature,
  topP: shape.topP,
  microBatchTokens: shape.microBatchTokens,
  ...optimizer,
  ...loraFields(),
});

const trainsOnPairs = ({ methods }: z.output<typeof options>) =>
  methodsOf(methods).some(({ kind }) => kind === 'preference');

/** The options of `compareMethods`, with descriptions and defaults. */
export const compareSchema = withRules(options, [
  // Policy runs have no dropout; preference losses do.
  ...inheritedRules(options, policySchema, (config) => policyConfig(config, pairing, 0)).filter(
    ({ options: names }) => names.join() !== 'loraDropout',
  ),
  {
    options: ['preferenceLr', 'loraDropout'],
    unread: (config) => !trainsOnPairs(config),
    because: 'none of the --methods trains on pairs',
  },
]);

/** The options of `compareMethods`, with defaults filled in. */
export type CompareConfig = z.output<typeof options>;
export type CompareInput = z.input<typeof options>;

const kinds = [
  ['policy', policyAlgorithms.filter(({ needsTeacher }) => !needsTeacher)],
  ['preference', preferenceLosses],
] as const;

/** Parses a list of method names; `all` for every method. */
export function methodsOf(names: readonly string[]): Method[] {
  const known: Method[] = kinds.flatMap(([kind, entries]) => entries.map(({ name }) => ({ name, kind })));
  const chosen = names.flatMap((asked) => {
    const wanted = asked.trim().toLowerCase().replaceAll('_', '-');
    if (wanted === 'all') return known;
    for (const [kind, entries] of kinds) {
      const found = entries.find(({ name, aliases }) => name === wanted || aliases?.includes(wanted));
      if (found !== undefined) return [{ name: found.name, kind }];
    }
    const all = known.map(({ name }) => name);
    const taught = policyAlgorithms.find(
      ({ name, aliases, needsTeacher }) => needsTeacher && [name, ...aliases].includes(wanted),
    );
    if (taught !== undefined)
      throw new UserError(
        `${taught.name} learns from a teacher, not from the rewards that methods are compared by: attune train policy --algorithm ${taught.name} --teacher … trains it.`,
      );
    throw new UserError(`There is no method "${asked}".${suggestion(wanted, all)} Known: ${all.join(', ')}.`);
  });
  checkOnce(
    '--methods',
    chosen.map(({ name }) => name),
  );
  return chosen;
}

/** Refuses repeated values: two identical runs would have a spread of 0. */
export function checkOnce(option: string, values: readonly (string | number)[]): void {
  const twice = values.find((value, i) => values.indexOf(value) !== i);
  if (twice !== undefined) throw new UserError(`${option}: ${twice} is given twice; name each once.`);
}

type LoraName = keyof ReturnType<typeof loraFields>;
const loraNames = Object.keys(loraFields()) as LoraName[];
type OptimizerName = keyof typeof optimizer;
const optimizerNames = Object.keys(optimizer) as OptimizerName[];

/** The options that both trainers share, and the method's own options. */
function shared(config: CompareConfig, method: Method, seed: number) {
  const { model, tokenizer, dtype, device } = config;
  // All options of LoRA and the optimiser, so that a new one cannot be forgotten here.
  const pick = <Name extends keyof CompareConfig>(names: readonly Name[]) =>
    Object.fromEntries(names.map((name) => [name, config[name]])) as Pick<CompareConfig, Name>;
  return {
    model,
    tokenizer,
    dtype,
    device,
    seed,
    ...pick(loraNames),
    ...pick(optimizerNames),
    ...ownOptions(config, method),
    outputDir: `${config.outputDir}/${method.name}`,
    runName: `seed-${seed}`,
    maxSteps: config.steps,
    evalSteps: -1,
    saveSteps: -1,
    saveModel: false,
    reportTo: [],
  };
}

function policyFlags(config: CompareConfig, method: Method, seed: number): Record<string, unknown> {
  const own: Record<string, unknown> = { ...shared(config, method, seed), algorithm: method.name };
  for (const name of Object.keys(options.shape)) {
    if (name in shape && !(name in own) && !(name in methodOptionFields))
      own[name] = config[name as keyof CompareConfig];
  }
  return { ...own, evalSteps: 1, evalNumPrompts: config.evalNumPrompts };
}

/** A preference loss trains on as many responses per step as a policy method samples, in pairs. */
export function preferenceFlags(
  config: CompareConfig,
  method: Method,
  seed: number,
  pairs: number,
): Partial<PreferenceConfigInput> {
  const responses = config.batchSize * config.gradAccum * config.groupSize;
  const batchSize = Math.max(1, Math.floor(responses / 2));
  return {
    ...shared(config, method, seed),
    loss: method.name,
    lr: config.preferenceLr ?? config.lr,
    batchSize,
    gradAccum: 1,
    // one pass more than needed, because the last step of each pass may be smaller
    epochs: Math.ceil((config.steps * batchSize) / Math.max(1, pairs)) + 1,
    validationSplit: 0,
    maxLength: config.promptMaxLength + config.maxNewTokens,
    promptFormat: config.promptFormat,
  };
}

/** The method whose prompts, rewards and sampling are used to make pairs. */
export const pairing: Method = { name: 'grpo', kind: 'policy' };

/** A policy run's config. For a preference loss, the config under which its pairs are sampled. */
export function policyConfig(config: CompareConfig, method: Method, seed: number): PolicyConfig {
  const sampled = method.kind === 'policy' ? method : pairing;
  return resolveConfig(policySchema, { flags: policyFlags(config, sampled, seed) }).config;
}
