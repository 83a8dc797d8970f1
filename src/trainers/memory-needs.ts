/** The memory a run needs by the memory plan, and what it would need with each option that reduces it. */
import type { Progress } from '../progress.ts';
import { modelPlan, type PlannedModel } from './model-plan.ts';
import type { MemoryNeeds, Remedy } from './out-of-memory.ts';

/** The options that decide a run's memory, named as in configs. Each trainer has some of them. */
export interface MemoryConfig extends PlannedModel {
  batchSize: number;
  gradAccum: number;
  tokenBudget?: number;
  maxLength?: number;
  microBatchTokens?: number;
}

export async function memoryNeeds(config: MemoryConfig, progress?: Progress): Promise<MemoryNeeds> {
  // The training has already started, so its model was accepted before.
  const plan = (changed: MemoryConfig) => modelPlan(changed, tokensAtOnce(changed), { progress, mayHaveHead: true });
  const { model, memory } = await plan(config);
  const remedies: Remedy[] = [];
  for (const [option, changes] of smaller(config))
    remedies.push({ option, totalBytes: (await plan({ ...config, ...changes })).memory.totalBytes });
  return { totalBytes: memory.totalBytes, device: model.device, remedies };
}

/** The most tokens in one forward pass. */
function tokensAtOnce({ microBatchTokens, tokenBudget, batchSize, maxLength = 2048 }: MemoryConfig): number {
  return microBatchTokens ?? tokenBudget ?? batchSize * maxLength;
}

function* smaller(config: MemoryConfig): Generator<[string, Partial<MemoryConfig>]> {
  const half = (value: number) => Math.max(1, Math.floor(value / 2));
  const { batchSize, gradAccum, tokenBudget, maxLength, microBatchTokens } = config;
  if (!config.gradientCheckpointing) yield ['--gradient-checkpointing', { gradientCheckpointing: true }];
  if (!config.lora) yield ['--lora', { lora: true }];
  else if (config.quantType === undefined) yield ['--quant-type int4', { quantType: 'int4' }];
  if (config.dtype !== 'bfloat16') yield ['--dtype bfloat16', { dtype: 'bfloat16' }];
  if (microBatchTokens !== undefined) {
    const fewer = half(microBatchTokens);
    yield [`--micro-batch-tokens ${fewer}`, { microBatchTokens: fewer }];
  } else if (tokenBudget !== undefined) {
    yield [`--token-budget ${half(tokenBudget)}`, { tokenBudget: half(tokenBudget) }];
  } else if (batchSize > 1) {
    // The same number of examples a step, in smaller micro-batches.
    yield [`--batch-size ${half(batchSize)} --grad-accum ${2 * gradAccum}`, { batchSize: half(batchSize) }];
  }
  if (maxLength !== undefined) yield [`--max-length ${half(maxLength)}`, { maxLength: half(maxLength) }];
}
