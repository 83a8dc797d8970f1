/** The model of a config, described from its config.json alone: its size, its context length and its memory. */
import { plannedRanks } from '../dist/place.ts';
import type { Shard } from '../dist/shard/optimizer.ts';
import { resolveModel } from '../hub/hub.ts';
import { openBase, readAdapterConfig, type StoredAdapter } from '../models/files/adapter.ts';
import { configQuantType } from '../models/files/bitsandbytes.ts';
import { checkQuantType, readConfig } from '../models/files/decoder.ts';
import { checkSameSize, checkTokenizer, checkVocabulary } from '../models/files/tokenizer.ts';
import { blocksFor, cacheBytes, mostSlots } from '../models/generate/cache/cache.ts';
import {
  type CacheDtype,
  deviceOf,
  dtypeOf,
  initModel,
  inspectModel,
  loadTokenizer,
  type MemoryEstimate,
  type Model,
  type QuantType,
  trainingMemory,
  weightBytes,
} from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { spelled } from '../spelling.ts';
import type { Device, DType } from '../tensor/index.ts';
import { refuseRewardModel } from './policy-model.ts';
import { rankMemory } from './rank-memory.ts';
import {
  checkQlora,
  checkTrainable,
  freshConfig,
  hasDropout,
  loraOptions,
  type ModelConfig,
  type SetupOptions,
} from './setup.ts';

export type PlannedModel = ModelConfig & { gradientCheckpointing: boolean; shard?: Shard };

export interface ModelPlan {
  model: { name: string; family: string; dtype: DType; device: Device };
  /** The longest sequence that the model can read. */
  positions: number;
  vocabSize: number;
  /** Whether adapters are trained: new ones, or the model's own. */
  adapters: boolean;
  /** Whether the model's own layers have dropout. */
  dropout: boolean;
  memory: MemoryEstimate;
  /** Bytes of the sampler's cache for this many responses of at most this length, `rolloutSlots` of them at a time. */
  cacheBytes(responses: number, length: number, sampler?: { rolloutSlots?: number; cacheDtype?: CacheDtype }): number;
  /** Total bytes with the adapters' base unquantised, int8 or int4; null without adapters. */
  choices: Record<'plain' | QuantType, number> | null;
  /** Several ranks, each with this memory; null for one rank. */
  ranks: RankPlan | null;
}

export interface RankPlan {
  count: number;
  shard: Shard;
  /** Total bytes of each rank by `--shard` mode. */
  choices: Record<Shard, number>;
  /** Bytes of the whole weights, which `--shard full` needs while it samples, evaluates or saves. */
  wholeBytes: number;
}

export interface PlanOptions {
  progress?: Progress;
  /** A reference model of the same size is also in memory. */
  secondCopy?: boolean;
  referenceQuantType?: QuantType;
  /** The reference, if it is not the trained model itself. */
  referenceModel?: string;
  /** Whether a model with a reward head may be trained, which only reward model training allows. */
  mayHaveHead?: boolean;
  /** Refuses given options that would have no effect on this model. */
  refuse?: SetupOptions['refuse'];
  /** The number of ranks. Default: what the environment says. */
  ranks?: number;
}

/** The model and its memory for this many tokens at a time. Also checks the names of LoRA's target modules. */
export async function modelPlan(config: PlannedModel, tokens: number, options: PlanOptions = {}): Promise<ModelPlan> {
  const { progress, referenceQuantType, ranks = plannedRanks(process.env) } = options;
  checkQlora(config);
  const device = deviceOf(config.device);
  const dtype = dtypeOf(config.dtype, device);
  const { config: described, adapter } = await describedModel(config, progress);
  using model = initModel(described, { device: 'meta', dtype });
  await checkOtherTokenizer(config, model, progress);
  if (!options.mayHaveHead && config.fromConfig === undefined) await refuseRewardModel(config.model, progress);
  if (options.referenceModel !== undefined) {
    const reference = await inspectModel(options.referenceModel, { progress, configOnly: true });
    checkSameSize(model.decoder.spec, reference, `The reference ${options.referenceModel}`);
    checkQuantType(options.referenceModel, reference.quantised, referenceQuantType);
  }
  const stored = configQuantType(described);
  checkQuantType(config.model, stored, config.quantType);
  checkTrainable(model, config, { hasAdapter: adapter !== null, stored, refuse: options.refuse });
  // An existing adapter is trained further. Its reference is a saved copy of the adapter, which needs no second model.
  const lora = adapter?.config.options ?? (config.lora ? loraOptions(config) : null);
  const isOwnReference = adapter !== null && options.referenceModel === undefined && referenceQuantType === undefined;
  const secondCopy = (options.secondCopy ?? false) && !isOwnReference;
  if (options.referenceModel === undefined) checkQuantType(config.model, stored, referenceQuantType);
  const memory = (quantType?: QuantType, shard: Shard = config.shard ?? 'none') => {
    // Sharded weights imply gradient checkpointing.
    const checkpointing = config.gradientCheckpointing || (shard === 'full' && ranks > 1);
    const options = { dtype, device, lora, quantType, secondCopy, referenceQuantType, tokens, checkpointing };
    return rankMemory(model, trainingMemory(model, options), { dtype, lora, quantType, shard, ranks });
  };
  const total = (quantType?: QuantType, shard?: Shard) => memory(quantType, shard).totalBytes;
  const held = config.quantType ?? stored ?? adapter?.base.quantType;
  const { spec } = model.decoder;
  return {
    positions: spec.maxPositions,
    vocabSize: spec.vocabSize,
    adapters: lora !== null,
    dropout: hasDropout(model),
    cacheBytes: (responses, length, { rolloutSlots, cacheDtype = 'model' } = {}) => {
      const kind = { dtype, device, cacheDtype };
      const slots = rolloutSlots ?? mostSlots(spec, length, kind);
      return cacheBytes(spec, { blocks: Math.min(slots, responses) * blocksFor(length) }, kind);
    },
    model: { name: config.fromConfig ?? config.model, family: model.family.modelType, dtype, device },
    memory: memory(held),
    choices: lora === null || stored !== null ? null : { plain: total(), int8: total('int8'), int4: total('int4') },
    ranks:
      ranks === 1
        ? null
        : {
            count: ranks,
            shard: config.shard ?? 'none',
            choices: { none: total(held, 'none'), optimizer: total(held, 'optimizer'), full: total(held, 'full') },
            wholeBytes: weightBytes(model, dtype, held),
          },
  };
}

/** A --tokenizer given in addition to the model must be the model's own or derived from it. */
async function checkOtherTokenizer(config: ModelConfig, model: Model, progress?: Progress): Promise<void> {
  if (config.tokenizer === undefined || config.fromConfig !== undefined) return;
  const tokenizer = await loadTokenizer(config, progress);
  checkVocabulary(model, tokenizer);
  await checkTokenizer(config, tokenizer);
}

/** The config.json of the trained model; for an adapter, that of its base. */
async function describedModel(
  config: ModelConfig,
  progress?: Progress,
): Promise<{ config: Record<string, unknown>; adapter: StoredAdapter | null }> {
  const { fromConfig } = config;
  if (fromConfig !== undefined)
    return { config: freshConfig(fromConfig, await loadTokenizer(config, progress)), adapter: null };
  const folder = await resolveModel(config.model, { tokenizerOnly: true, progress });
  const adapter = readAdapterConfig(folder);
  if (adapter === null) return { config: readConfig(folder), adapter };
  const base = await openBase(folder, adapter, (model) =>
    describedModel({ ...config, model, fromConfig: undefined }, progress),
  );
  return { ...base, adapter };
}

/** The longest sequence that the model can read, prompt and response together. */
async function positionsOf(config: ModelConfig, progress?: Progress): Promise<number> {
  const { config: described } = await describedModel(config, progress);
  using model = initModel(described, { device: 'meta' });
  return model.decoder.spec.maxPositions;
}

/** The config with --max-length lowered to the model's context. Longer examples are then skipped and counted. */
export async function withinPositions<Config extends ModelConfig & { maxLength: number }>(
  config: Config,
  progress?: Progress,
): Promise<Config> {
  const positions = await positionsOf(config, progress);
  if (config.maxLength <= positions) return config;
  const note = `${config.fromConfig ?? config.model} has ${positions} positions: --max-length ${config.maxLength} becomes ${positions}`;
  progress?.start('reading the model').done(spelled(note));
  return { ...config, maxLength: positions };
}
