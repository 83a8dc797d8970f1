/**
 * Plans a training for `--dry-run` without loading weights: the model's size from its config, the data, the steps, the
 * memory.
 */
import { existsSync } from 'node:fs';
import type { TokenStore } from '../../data/index.ts';
import { resolveModel } from '../../hub/hub.ts';
import {
  baseOfAdapter,
  configQuantType,
  deviceOf,
  dtypeOf,
  initModel,
  type MemoryEstimate,
  type QuantType,
  readConfig,
  trainingMemory,
} from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { readJson } from '../../runs/index.ts';
import { checkQlora, loraOptions, type ModelConfig } from '../setup.ts';
import { StepBatches, type StepBatchOptions } from './step-batches.ts';

export interface TrainingPlan {
  model: { name: string; family: string; dtype: string; device: string };
  memory: MemoryEstimate;
  /** What it takes in all with the base of the adapters held in each way; null without adapters. */
  choices: Record<'plain' | QuantType, number> | null;
  data: { train: DataCount; validation?: DataCount };
  steps: { total: number; microBatches: number; tokensPerMicroBatch: number };
}

interface DataCount {
  examples: number;
  tokens: number;
  dropped: Record<string, number>;
}

export interface PlanOptions {
  progress?: Progress;
  /** A reference model of the same size is also in memory. */
  secondCopy?: boolean;
  referenceQuantType?: QuantType;
}

export async function trainingPlan(
  config: ModelConfig & { gradientCheckpointing: boolean },
  data: { train: TokenStore; validation?: TokenStore },
  batching: StepBatchOptions,
  options: PlanOptions = {},
): Promise<TrainingPlan> {
  const { train } = data;
  const perExample = train.totalTokens / train.length;
  const tokens = Math.round(batching.tokenBudget ?? Math.min(batching.batchSize, train.length) * perExample);
  return {
    ...(await modelPlan(config, tokens, options)),
    data: { train: counted(train), ...(data.validation === undefined ? {} : { validation: counted(data.validation) }) },
    steps: {
      total: new StepBatches(train, batching).totalSteps,
      microBatches: batching.gradAccum,
      tokensPerMicroBatch: tokens,
    },
  };
}

/** The model and its memory for this many tokens at once; also checks the names of LoRA's modules. */
export async function modelPlan(
  config: ModelConfig & { gradientCheckpointing: boolean },
  tokens: number,
  { progress, secondCopy = false, referenceQuantType }: PlanOptions = {},
): Promise<Pick<TrainingPlan, 'model' | 'memory' | 'choices'>> {
  checkQlora(config);
  const device = deviceOf(config.device);
  const dtype = dtypeOf(config.dtype, device);
  const described = await describedModel(config, progress);
  using model = initModel(described, { device: 'meta', dtype });
  const lora = config.lora ? loraOptions(config) : null;
  const checkpointing = config.gradientCheckpointing;
  const stored = configQuantType(described);
  const memory = (quantType?: QuantType) =>
    trainingMemory(model, {
      ...{ dtype, device, lora, quantType, secondCopy, referenceQuantType, tokens, checkpointing },
    });
  const total = (quantType?: QuantType) => memory(quantType).totalBytes;
  return {
    model: { name: config.fromConfig ?? config.model, family: model.family.modelType, dtype, device },
    memory: memory(config.quantType ?? stored ?? undefined),
    choices: lora === null || stored !== null ? null : { plain: total(), int8: total('int8'), int4: total('int4') },
  };
}

async function describedModel(config: ModelConfig, progress?: Progress): Promise<Record<string, unknown>> {
  const { fromConfig } = config;
  if (fromConfig !== undefined && existsSync(fromConfig) && fromConfig.endsWith('.json'))
    return readJson(fromConfig) ?? {};
  const folder = await resolveModel(fromConfig ?? config.model, { tokenizerOnly: true, progress });
  const base = baseOfAdapter(folder);
  return base === undefined ? readConfig(folder) : describedModel({ ...config, model: base }, progress);
}

function counted(store: TokenStore): DataCount {
  return { examples: store.length, tokens: store.totalTokens, dropped: store.tally.dropped };
}

const number = (value: number) => value.toLocaleString('en-US', { maximumFractionDigits: 0 });
const gib = (bytes: number) =>
  bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** The memory of LoRA and QLoRA, so that one can choose. */
export function describeChoices({ model, choices }: Pick<TrainingPlan, 'model' | 'choices'>): string[] {
  if (choices === null) return [];
  const { plain, int8, int4 } = choices;
  return [
    `QLoRA     base in ${model.dtype} about ${gib(plain)}, --quant-type int8 ${gib(int8)}, --quant-type int4 ${gib(int4)}`,
  ];
}

/** The plan as text. */
export function describePlan(plan: TrainingPlan): string {
  const { model, memory, data, steps } = plan;
  const part = ({ examples, tokens, dropped }: DataCount) => {
    const reasons = Object.entries(dropped).map(([reason, count]) => `${reason} ${number(count)}`);
    return `${number(examples)} examples, ${number(tokens)} tokens${reasons.length > 0 ? `; left out: ${reasons.join(', ')}` : ''}`;
  };
  const lines = [
    `Model     ${model.name}: ${model.family}, ${number(memory.parameters)} parameters (${number(memory.trainable)} trained), ${model.dtype} on ${model.device}`,
    `Memory    about ${gib(memory.totalBytes)}: weights ${gib(memory.weightBytes)}, ${memory.referenceBytes > 0 ? `reference ${gib(memory.referenceBytes)}, ` : ''}gradients and optimiser ${gib(memory.optimizerBytes)}, activations ${gib(memory.activationBytes)}`,
    ...describeChoices(plan),
    `Data      ${part(data.train)}`,
    ...(data.validation === undefined ? [] : [`Held out  ${part(data.validation)}`]),
    `Steps     ${number(steps.total)}, each of ${steps.microBatches} micro-batches of about ${number(steps.tokensPerMicroBatch)} tokens`,
  ];
  return lines.join('\n');
}
