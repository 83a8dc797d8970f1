/**
 * Plans a training for `--dry-run` without loading weights: the model's size from its config, the data, the steps and
 * the memory.
 */
import type { TokenStore } from '../../data/index.ts';
import type { MemoryEstimate } from '../../models/index.ts';
import type { FoundCheckpoint } from '../../runs/index.ts';
import { counted as count } from '../../spelling.ts';
import { checkPlace } from '../loop/same-data.ts';
import { type ModelPlan, modelPlan, type PlannedModel, type PlanOptions } from '../model-plan.ts';
import { tellStepNotes } from '../step-notes.ts';
import { StepBatches, type StepBatchOptions, type StepState } from './step-batches.ts';

export interface TrainingPlan extends ModelPlan {
  /** The --max-length that was requested. */
  maxLength?: number;
  /** The longest sequence that the teacher can read. It reads the same examples. */
  teacherPositions?: number;
  data: { train: DataCount; validation?: DataCount };
  steps: { total: number; microBatches: number; tokensPerMicroBatch: number };
}

export interface TrainingPlanOptions extends PlanOptions {
  /** The checkpoint to resume from. */
  resume?: FoundCheckpoint;
}

interface DataCount {
  examples: number;
  tokens: number;
  /** The number of dropped examples by reason. */
  dropped: Record<string, number>;
  badRows: number;
}

export async function trainingPlan(
  config: PlannedModel & { maxLength?: number; allowChangedData?: boolean },
  data: { train: TokenStore; validation?: TokenStore },
  batching: StepBatchOptions,
  { resume, ...options }: TrainingPlanOptions = {},
): Promise<TrainingPlan> {
  const { train } = data;
  const perExample = train.totalTokens / train.length;
  // An epoch ends its last micro-batch, so none holds more tokens than the dataset.
  const tokens = Math.round(Math.min(batching.tokenBudget ?? batching.batchSize * perExample, train.totalTokens));
  const steps = new StepBatches(train, batching);
  if (resume !== undefined) {
    const task = {
      ...{ dataFingerprint: train.fingerprint, heldOutFingerprint: data.validation?.fingerprint },
      restore: (state: unknown) => steps.restore(state as StepState),
      get totalSteps() {
        return steps.totalSteps;
      },
      get limits() {
        return steps.limits;
      },
    };
    const { allowChangedData = false } = config;
    await checkPlace({ path: resume.path, task }, { allowChangedData, progress: options.progress });
  }
  tellStepNotes({ ...config, ...batching }, steps, options.progress);
  const { totalSteps, microBatches } = steps;
  return {
    ...(await modelPlan(config, tokens, options)),
    maxLength: config.maxLength,
    data: { train: counted(train), ...(data.validation === undefined ? {} : { validation: counted(data.validation) }) },
    steps: { total: totalSteps, microBatches, tokensPerMicroBatch: tokens },
  };
}

function counted(store: TokenStore): DataCount {
  const { dropped, badRows } = store.tally;
  return { examples: store.length, tokens: store.totalTokens, dropped, badRows };
}

const number = (value: number) => value.toLocaleString('en-US', { maximumFractionDigits: 0 });
const gib = (bytes: number) =>
  bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** The memory by part. `more` is memory besides training, in bytes by name. */
export function describeMemory(memory: MemoryEstimate, more: Readonly<Record<string, number>> = {}): string {
  const parts = {
    weights: memory.weightBytes,
    ...(memory.referenceBytes > 0 ? { reference: memory.referenceBytes } : {}),
    'gradients and optimiser': memory.optimizerBytes,
    activations: memory.activationBytes,
    ...more,
  };
  const total = Object.values(more).reduce((sum, bytes) => sum + bytes, memory.totalBytes);
  const told = Object.entries(parts).map(([name, bytes]) => `${name} ${gib(bytes)}`);
  return `about ${gib(total)}: ${told.join(', ')}`;
}

/** The memory with LoRA and with QLoRA, for comparison. */
export function describeChoices({ model, choices }: Pick<TrainingPlan, 'model' | 'choices'>): string[] {
  if (choices === null) return [];
  const { plain, int8, int4 } = choices;
  return [
    `QLoRA     base in ${model.dtype} about ${gib(plain)}, --quant-type int8 ${gib(int8)}, --quant-type int4 ${gib(int4)}`,
  ];
}

/** The memory of each rank by `--shard` mode. `more` is memory besides training, in bytes. */
export function describeRanks({ ranks }: Pick<TrainingPlan, 'ranks'>, more = 0): string[] {
  if (ranks === null) return [];
  const { count, shard, choices, wholeBytes } = ranks;
  const each = Object.entries(choices).map(
    ([mode, bytes], i) => `${i === 0 ? '--shard ' : ''}${mode} ${gib(bytes + more)}`,
  );
  const whole = shard === 'full' ? `; its weights whole, ${gib(wholeBytes)}, while it samples, evaluates or saves` : '';
  return [`Ranks     ${count}, the memory above is that of each: ${each.join(', ')}${whole}`];
}

/** Says so if the model's or the teacher's context is shorter than --max-length. */
function describeLength({ positions, teacherPositions = positions, maxLength = 0 }: TrainingPlan): string[] {
  const least = Math.min(positions, teacherPositions);
  if (maxLength <= least) return [];
  const whose = teacherPositions < positions ? 'teacher' : 'model';
  return [
    `Length    ${number(least)} tokens, which is all the positions that the ${whose} has (--max-length ${maxLength})`,
  ];
}

/** The plan as text. `more` is memory besides training, in bytes by name. */
export function describePlan(plan: TrainingPlan, more: Readonly<Record<string, number>> = {}): string {
  const { model, memory, data, steps } = plan;
  const part = ({ examples, tokens, dropped, badRows }: DataCount) => {
    const reasons = Object.entries(dropped).map(([reason, count]) => `${reason} ${number(count)}`);
    if (badRows > 0) reasons.push(`broken rows ${number(badRows)}`);
    return `${count(examples, 'example')}, ${count(tokens, 'token')}${reasons.length > 0 ? `; left out: ${reasons.join(', ')}` : ''}`;
  };
  const besides = Object.values(more).reduce((sum, bytes) => sum + bytes, 0);
  const lines = [
    `Model     ${model.name}: ${model.family}, ${number(memory.parameters)} parameters (${number(memory.trainable)} trained), ${model.dtype} on ${model.device}`,
    `Memory    ${describeMemory(memory, more)}`,
    ...describeChoices(plan),
    ...describeRanks(plan, besides),
    ...describeLength(plan),
    `Data      ${part(data.train)}`,
    ...(data.validation === undefined ? [] : [`Held out  ${part(data.validation)}`]),
    `Steps     ${number(steps.total)}, each of ${count(steps.microBatches, 'micro-batch')} of about ${number(steps.tokensPerMicroBatch)} tokens`,
  ];
  return lines.join('\n');
}
