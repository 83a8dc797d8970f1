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

/** Limits prompts so that prompt and response together fit in the model's context. */
export function promptsWithin(config: PolicyConfig, positions: number): PolicyConfig {
  const room = positions - config.maxNewTokens;
  if (room < 1)
    throw new UserError(
      `--max-new-tokens ${config.maxNewTokens}: there are ${positions} positions for prompt and response together in the model${config.teacher === undefined ? '' : ' or its teacher'}.`,
    );
  return { ...config, promptMaxLength: Math.min(config.promptMaxLength, room) };
}

/** Whether the reference is the policy's own base with its adapters off. */
async function sharesBase(config: PolicyConfig): Promise<boolean> {
  return config.lora && config.refModel === undefined && !(await isAdapter(config.model));
}

/** Whether the policy starts from a trained adapter, which is then also the reference. */
async function startsFromAdapter({ refModel, refQuantType, model }: PolicyConfig): Promise<boolean> {
  return refModel === undefined && refQuantType === undefined && (await isAdapter(model));
}

/** Reads the config only: a plan downloads no weights. */
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

/** Keys and values of the responses sampled at the same time, each at its maximum length. */
function cacheBytes(config: PolicyConfig, plan: ModelPlan): number {
  // Each rank samples its share of the prompts.
  const prompts = Math.ceil((config.batchSize * config.gradAccum) / (plan.ranks?.count ?? 1));
  const responses = prompts * config.groupSize;
  return plan.cacheBytes(responses, config.promptMaxLength + config.maxNewTokens, config);
}

/** A critic with its own backbone, which the plan does not count. */
const ownCritic = ({ valueBackbone }: PolicyConfig) => (valueBackbone === 'own' ? '; the critic besides' : '');

export interface PolicyPlanOptions extends Pick<PlanOptions, 'progress' | 'refuse'> {
  /** Where each option came from. Some checks refuse an option only if it was given. */
  sources?: Record<string, string>;
  /** The checkpoint to resume from. */
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
  if (prompts.size === undefined) await prompts.take(1); // refuses tasks none of whose prompts fit
  configuredPlayer(within, tokenizer);
  checkHeldOut(config, evaluation.length > 0, sources);
  if (resume !== undefined) {
    const { maxSteps } = plannedSteps(config, prompts);
    const task = {
      dataFingerprint: prompts.fingerprint,
      // A plan knows no rewards passed by a program.
      restore: (state: unknown) => checkGivenRewards((state as { given?: string[] } | undefined)?.given, []),
      heldOutFingerprint: evaluation.length === 0 ? undefined : promptsFingerprint(evaluation),
      // The run counts its remaining prompts itself. A plan can only check --max-steps.
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
