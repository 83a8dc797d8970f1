/** Plans a policy run for `--dry-run`, without loading weights. */
import { usesReference } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { resolveModel } from '../../hub/hub.ts';
import { readAdapterConfig } from '../../models/files/adapter.ts';
import { loadTokenizer } from '../../models/index.ts';
import { configuredPlayer } from '../../rollouts/agents/configured.ts';
import { openedEnvironments, openPrompts } from '../../rollouts/opening.ts';
import { promptsFingerprint } from '../../rollouts/prompts.ts';
import { checkReward } from '../../rollouts/scorer.ts';
import type { FoundCheckpoint } from '../../runs/index.ts';
import { counted } from '../../spelling.ts';
import { describeChoices, describeMemory, describeRanks } from '../batches/plan.ts';
import { checkHeldOut } from '../loop/best.ts';
import { checkPlace } from '../loop/same-data.ts';
import { type ModelPlan, modelPlan, type PlanOptions } from '../model-plan.ts';
import { checkQuantised } from '../reference/options.ts';
import { checkTeacher, hasTeacher, teachingMemory } from '../teacher/teacher.ts';
import { algorithmOf } from './algorithm-options.ts';
import { checkPolicyConfig, type PolicyConfig } from './config.ts';
import { checkGivenRewards } from './rules.ts';
import { plannedSteps, stepsOf } from './steps.ts';

/** Prompts are short enough that a whole response fits behind them: the model has so many positions and no more. */
export function promptsWithin(config: PolicyConfig, positions: number): PolicyConfig {
  const room = positions - config.maxNewTokens;
  if (room < 1)
    throw new UserError(
      `--max-new-tokens ${config.maxNewTokens}: there are ${positions} positions for prompt and response together in the model${config.teacher === undefined ? '' : ' or its teacher'}.`,
    );
  return { ...config, promptMaxLength: Math.min(config.promptMaxLength, room) };
}

/** Whether the reference is the policy's own base with adapters off. */
async function sharesBase(config: PolicyConfig): Promise<boolean> {
  return config.lora && config.refModel === undefined && !(await isAdapter(config.model));
}

/** Whether the policy starts from a trained adapter, which is then the reference. */
async function startsFromAdapter({ refModel, refQuantType, model }: PolicyConfig): Promise<boolean> {
  return refModel === undefined && refQuantType === undefined && (await isAdapter(model));
}

/** Its config says so: a plan fetches no weights. */
const isAdapter = async (model: string) => readAdapterConfig(await resolveModel(model, { configOnly: true })) !== null;

export async function checkReference(config: PolicyConfig): Promise<void> {
  if (config.refQuantType !== undefined) checkQuantised(config, await sharesBase(config));
}

async function describeReference(config: PolicyConfig): Promise<string> {
  if (await sharesBase(config)) return 'the base with adapters off';
  if (await startsFromAdapter(config)) return 'the adapter as it was at the start, on the same base';
  return `${config.refModel ?? 'a second copy'}${config.refQuantType === undefined ? '' : `, ${config.refQuantType}`}`;
}

const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

/** Keys and values of all responses that are sampled at the same time, each as long as it may become. */
function cacheBytes(config: PolicyConfig, plan: ModelPlan): number {
  // Each rank samples its part of them.
  const prompts = Math.ceil((config.batchSize * config.gradAccum) / (plan.ranks?.count ?? 1));
  const responses = prompts * config.groupSize;
  return plan.cacheBytes(responses, config.promptMaxLength + config.maxNewTokens, config);
}

/** A critic of its own, whose size the plan does not know. */
const ownCritic = ({ valueBackbone }: PolicyConfig) => (valueBackbone === 'own' ? '; the critic besides' : '');

export interface PolicyPlanOptions extends Pick<PlanOptions, 'progress' | 'refuse'> {
  /** Where the options come from, for what is refused only where it was given. */
  sources?: Record<string, string>;
  /** The checkpoint that the run goes on from. */
  resume?: FoundCheckpoint;
}

/** The plan as text. */
export async function policyPlan(config: PolicyConfig, options: PolicyPlanOptions = {}): Promise<string> {
  const { progress, refuse, sources = {}, resume } = options;
  checkPolicyConfig(config);
  await checkReference(config);
  const { algorithm, options: algorithmOptions } = algorithmOf(config);
  const tokenizer = await loadTokenizer(config, progress);
  const perStep = config.batchSize * config.gradAccum;
  const isSecondCopy =
    usesReference(algorithm, algorithmOptions) && !(await sharesBase(config)) && !(await startsFromAdapter(config));
  const planned = await modelPlan(config, config.microBatchTokens, {
    secondCopy: isSecondCopy,
    referenceModel: usesReference(algorithm, algorithmOptions) ? config.refModel : undefined,
    progress,
    refuse,
    ...(config.refQuantType === undefined ? {} : { referenceQuantType: config.refQuantType }),
  });
  const { vocabSize } = planned;
  const { device, dtype } = planned.model;
  const student = { tokenizer, vocabSize, dtype, device };
  const taught = algorithm.needsTeacher && hasTeacher(config);
  const teacher = taught ? await checkTeacher(config, student, { progress }) : null;
  const within = promptsWithin(config, Math.min(planned.positions, teacher?.positions ?? planned.positions));
  using environments = await openedEnvironments(config);
  const { prompts, train, evaluation } = await openPrompts(within, tokenizer, { progress, environments });
  if (prompts.size === undefined) await prompts.take(1); // refuses tasks none of whose prompts fits
  configuredPlayer(within, tokenizer);
  checkHeldOut(config, evaluation.length > 0, sources);
  if (resume !== undefined) {
    const { maxSteps } = plannedSteps(config, prompts);
    const task = {
      dataFingerprint: prompts.fingerprint,
      // Of a plan nobody hands rewards over.
      restore: (state: unknown) => checkGivenRewards((state as { given?: string[] } | undefined)?.given, []),
      heldOutFingerprint: evaluation.length === 0 ? undefined : promptsFingerprint(evaluation),
      // The prompts that are left are counted by the run: here only --max-steps can be too few.
      ...{ totalSteps: maxSteps ?? Number.POSITIVE_INFINITY, limits: ['maxSteps'] as const },
    };
    await checkPlace({ path: resume.path, task }, { allowChangedData: config.allowChangedData, progress });
  }
  const cache = cacheBytes(within, planned);
  const prompted = [...train, ...evaluation];
  const judge = await checkReward(config, { device, prompts: prompted, progress, optional: algorithm.needsTeacher });
  const besides = {
    'cache of the sampler': cache,
    ...(judge > 0 ? { 'reward model': judge } : {}),
    ...(teacher === null ? {} : teachingMemory(teacher, student, config.microBatchTokens)),
  };
  const updates = algorithmOptions.ppoEpochs * config.nMinibatches;
  return [
    `${algorithm.name}: ${algorithm.summary}`,
    `prompts: ${prompts.size === undefined ? 'endless' : prompts.size}, ${evaluation.length} held out for evaluation`,
    ...(config.env === undefined ? [] : [`episodes: ${config.env}, up to ${counted(config.maxTurns, 'turn')}`]),
    ...(config.agent === undefined ? [] : [`episodes: ${config.agent}, up to ${counted(config.maxTurns, 'call')}`]),
    `each step: ${counted(perStep, 'prompt')} × ${counted(config.groupSize, 'response')} = ${counted(perStep * config.groupSize, 'rollout')}, ${counted(updates, 'update')}`,
    `steps: ${stepsOf(config, prompts)}`,
    `memory: ${describeMemory(planned.memory, besides)}${ownCritic(config)}`,
    ...describeChoices(planned).map((line) => line.replace(/^QLoRA +/, 'memory with adapters: ')),
    ...describeRanks(planned, sumOf(Object.values(besides))).map((line) => line.replace(/^Ranks +/, 'ranks: ')),
    `reference: ${usesReference(algorithm, algorithmOptions) ? await describeReference(config) : 'none'}`,
    ...(teacher === null ? [] : [`teacher: ${describeTeacher(config)}`]),
  ].join('\n');
}

const describeTeacher = ({ teacher, teacherQuantType: type }: PolicyConfig) =>
  `${teacher}${type === undefined ? '' : `, ${type}`}`;
