/**
 * Describes a model without loading its weights: family, parameters by part, memory, tokenizer.
 *
 *     const found = await inspectModel('Qwen/Qwen3-0.6B');
 *     found.parameters.total;                              // 596049920
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkArguments, whole } from '../../arguments.ts';
import { checkNames } from '../../errors.ts';
import { type ResolveOptions, resolveModel, resolveOptionNames } from '../../hub/hub.ts';
import { namedPath } from '../../hub/place.ts';
import type { QuantType } from '../../nn/index.ts';
import { Checkpoint, type Device, type DType, dtypeBytes, openSafetensors } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import type { DecoderSpec } from '../families/spec.ts';
import type { LoraOptions } from '../lora/config.ts';
import type { Model } from '../model.ts';
import { openBase, readAdapterConfig } from './adapter.ts';
import { configQuantType } from './bitsandbytes.ts';
import { configDtype, readConfig } from './decoder.ts';
import { storedHead } from './head.ts';
import { initModel } from './load.ts';
import { type MemoryEstimate, trainingMemory, weightBytes } from './memory.ts';

/** How the model would be loaded and trained, for the memory estimates. */
export interface InspectOptions extends ResolveOptions {
  /** The dtype to load and train in; the checkpoint's own by default. */
  dtype?: DType;
  /** Tokens of a micro-batch in training. */
  tokens?: number;
  checkpointing?: boolean;
  /** The device it would train on; this machine's best by default. */
  device?: Device;
  lora?: LoraOptions;
}

const ownOptions: Record<Exclude<keyof InspectOptions, keyof ResolveOptions>, true> = {
  ...{ dtype: true, tokens: true, checkpointing: true, device: true, lora: true },
};

/** What `inspectModel` found: sizes, parameters, memory, tokenizer. */
export interface Inspection {
  name: string;
  folder: string;
  family: string;
  architectures: string[];
  dtype: DType;
  /** Parameters in the files by dtype; empty if the files are not on this disk. */
  storedBytes: Partial<Record<DType, number>>;
  parameters: {
    total: number;
    embedding: number;
    attention: number;
    mlp: number;
    norms: number;
    /** The language-model head if it is not tied to the embedding, and a reward, value or class head. */
    head: number;
    adapters: number;
  };
  layers: number;
  hiddenSize: number;
  vocabSize: number;
  tied: boolean;
  /** The score head, if there is one. If the files are not on this disk, it comes from the config. */
  head: string | null;
  contextTokens: number;
  positions: string;
  attention: string;
  /** How the blocks' matrices are quantised in the files; null if they are not. */
  quantised: QuantType | null;
  adapter: { base: string; r: number; alpha: number; targetModules: readonly string[]; dora: boolean } | null;
  memory: {
    tokens: number;
    checkpointing: boolean;
    loadBytes: number;
    /** The same with the blocks' matrices quantised. */
    quantisedBytes: Record<QuantType, number>;
    train: MemoryEstimate;
    lora: MemoryEstimate & { r: number; targetModules: readonly string[] };
    /** LoRA on a base whose blocks' matrices are quantised. */
    qlora: Record<QuantType, MemoryEstimate>;
  };
  tokenizer: {
    vocabSize: number;
    special: Record<'bos' | 'eos' | 'pad' | 'unk', string | null>;
    endOfTurn: string[];
    chatTemplate: boolean;
  } | null;
}

/** Reads a model's config and file headers, without its weights: family, parameters, memory and tokenizer. */
export async function inspectModel(name: string, options: InspectOptions = {}): Promise<Inspection> {
  checkNames('inspectModel', options, [...resolveOptionNames, ...Object.keys(ownOptions)]);
  checkArguments('inspectModel', options, { tokens: whole(1) });
  const folder = await resolveModel(name, { ...options, tokenizerOnly: !options.configOnly });
  const adapter = readAdapterConfig(folder);
  if (adapter === null) return inspectFolder(name, folder, options);
  const base = await openBase(folder, adapter, (model) => inspectModel(model, options));
  const { r = 8, alpha = 8, targetModules = [], useDora = false } = adapter.config.options;
  const sizes = adapterSizes(folder);
  const isHere = existsSync(join(folder, 'adapter_model.safetensors'));
  const hasHead = sizes.head > 0 || (!isHere && /^(SEQ|TOKEN)_CLS$/.test(adapter.config.task ?? ''));
  const added = 4 * (sizes.head + sizes.adapters);
  const tokenizer = (await readTokenizer(folder)) ?? base.tokenizer;
  const { parameters } = base;
  return {
    ...base,
    name,
    folder,
    tokenizer,
    head: hasHead ? adapterHead(adapter.config.task) : base.head,
    parameters: {
      ...parameters,
      head: parameters.head + sizes.head,
      adapters: sizes.adapters,
      total: parameters.total + sizes.head + sizes.adapters,
    },
    memory: {
      ...base.memory,
      loadBytes: base.memory.loadBytes + added,
      quantisedBytes: {
        int8: base.memory.quantisedBytes.int8 + added,
        int4: base.memory.quantisedBytes.int4 + added,
      },
    },
    adapter: { base: adapter.base.name, r, alpha, targetModules: [targetModules].flat(), dora: useDora },
  };
}

const INDEX = 'model.safetensors.index.json';

const adapterHead = (task: string | null) =>
  task === 'TOKEN_CLS' ? 'classes' : task === 'SEQ_CLS' ? 'reward' : 'value';

async function inspectFolder(name: string, folder: string, options: InspectOptions): Promise<Inspection> {
  const config = readConfig(folder);
  const dtype = options.dtype ?? configDtype(config);
  using model = initModel(config, { device: 'meta', dtype, source: join(folder, 'config.json') });
  const { spec } = model.decoder;
  const { tokens = 8192, checkpointing = false, lora = {} } = options;
  const stored = storedWeights(folder, config, !existsSync(namedPath(name)));
  const isHere = Object.keys(stored.bytes).length > 0;
  const hasHead = isHere ? stored.headParameters > 0 : saysHead(model);
  const parameters = partsOf(model);
  parameters.head += stored.headParameters;
  parameters.total += stored.headParameters;
  const memory = { dtype, tokens, checkpointing, device: options.device };
  const base = stored.quantType ?? undefined;
  const quantised = (type: QuantType) => weightBytes(model, dtype, type) + stored.headParameters * dtypeBytes[dtype];
  return {
    name,
    folder,
    family: model.family.modelType,
    architectures: (config.architectures as string[] | undefined) ?? [],
    dtype,
    storedBytes: stored.bytes,
    parameters,
    layers: spec.layers,
    hiddenSize: spec.hiddenSize,
    vocabSize: spec.vocabSize,
    tied: spec.tied,
    head: hasHead ? (model.notes.head ?? 'reward') : null,
    contextTokens: spec.maxPositions,
    positions: positionsOf(spec),
    attention: attentionOf(spec),
    quantised: stored.quantType,
    adapter: null,
    memory: {
      tokens,
      checkpointing,
      loadBytes: stored.quantType === null ? parameters.total * dtypeBytes[dtype] : quantised(stored.quantType),
      quantisedBytes: { int8: quantised('int8'), int4: quantised('int4') },
      train: trainingMemory(model, memory),
      lora: {
        ...trainingMemory(model, { ...memory, lora, quantType: base }),
        r: lora.r ?? 16,
        targetModules: [lora.targetModules ?? model.family.loraTargets].flat(),
      },
      qlora: {
        int8: trainingMemory(model, { ...memory, lora, quantType: 'int8' }),
        int4: trainingMemory(model, { ...memory, lora, quantType: 'int4' }),
      },
    },
    tokenizer: await readTokenizer(folder),
  };
}

function partsOf(model: Model): Inspection['parameters'] {
  const { weights, layers } = model.decoder;
  const sum = (tensors: ({ numel: number } | null | undefined)[]) =>
    tensors.reduce((count, tensor) => count + (tensor?.numel ?? 0), 0);
  const norms = layers.flatMap((layer) => layer.norms).concat(weights.finalNorm, weights.embeddingNorm ?? []);
  const of = (...names: ('qkv' | 'out' | 'up' | 'down')[]) =>
    sum(layers.flatMap((layer) => names.flatMap((name) => [layer.weights[name].weight, layer.weights[name].bias])));
  return {
    total: model.decoder.parameterCount(),
    embedding: sum([weights.embedding.weight, weights.positions?.weight]),
    attention: of('qkv', 'out'),
    mlp: of('up', 'down'),
    norms: sum(norms.flatMap((norm) => [norm.weight, norm.bias])),
    head: sum([weights.head?.weight, weights.head?.bias]),
    adapters: 0,
  };
}

interface StoredWeights {
  bytes: Partial<Record<DType, number>>;
  headParameters: number;
  quantType: QuantType | null;
}

/** The sizes in the files' headers. `onHub`: missing files, including missing shards, will be downloaded. */
function storedWeights(folder: string, config: Record<string, unknown>, onHub: boolean): StoredWeights {
  const quantType = configQuantType(config);
  const files = ['model.safetensors', INDEX].filter((file) => existsSync(join(folder, file)));
  const fetched = files.length > 0 && !(onHub && files[0] === INDEX && lacksShards(folder));
  if (!fetched) return { bytes: {}, headParameters: 0, quantType };
  using checkpoint = new Checkpoint(folder);
  const bytes: Partial<Record<DType, number>> = {};
  for (const name of checkpoint.names) {
    const info = checkpoint.info(name);
    bytes[info.dtype] = (bytes[info.dtype] ?? 0) + info.bytes;
  }
  const head = storedHead(checkpoint);
  const headParameters = head === undefined ? 0 : count(checkpoint.info(`${head}.weight`).shape);
  return { bytes, headParameters, quantType };
}

/** Whether a download stopped between two shards. */
function lacksShards(folder: string): boolean {
  try {
    const index = JSON.parse(readFileSync(join(folder, INDEX), 'utf8')) as { weight_map: Record<string, string> };
    return Object.values(index.weight_map).some((shard) => !existsSync(join(folder, shard)));
  } catch {
    return false; // A damaged index is refused when it is opened.
  }
}

/** Whether a config mentions a score head: attune notes its kind, transformers the class of the model. */
function saysHead({ notes, config }: Model): boolean {
  const architectures = (config.architectures ?? []) as string[];
  return notes.head !== undefined || architectures.some((name) => /For(Sequence|Token)Classification$/.test(name));
}

function adapterSizes(folder: string): { adapters: number; head: number } {
  const sizes = { adapters: 0, head: 0 };
  for (const file of ['adapter_model.safetensors', 'value_head.safetensors']) {
    if (!existsSync(join(folder, file))) continue;
    using opened = openSafetensors(join(folder, file));
    for (const name of opened.names) {
      if (name === 'value.weight') continue; // the critic's head from training, which is not part of the model
      const part = /(^|\.)(score|classifier)\.(weight|bias)$/.test(name) ? 'head' : 'adapters';
      sizes[part] += count(opened.info(name).shape);
    }
  }
  return sizes;
}

const count = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);

function positionsOf({ positions }: DecoderSpec): string {
  if (positions.kind !== 'rope') return positions.kind;
  const scaling =
    positions.scaling === undefined ? '' : `, ${positions.scaling.kind} scaling ×${positions.scaling.factor}`;
  return `rope (theta ${positions.theta}${scaling})`;
}

function attentionOf({ attention, layers }: DecoderSpec): string {
  const { heads, kvHeads, headDim, windows } = attention;
  const kind = kvHeads === heads ? 'multi-head' : kvHeads === 1 ? 'multi-query' : 'grouped-query';
  const limited = windows.filter((window) => window !== null);
  const reach =
    limited.length === 0
      ? 'full'
      : `sliding window of ${limited[0]} tokens${limited.length < layers ? ` in ${limited.length} of ${layers} layers` : ''}`;
  return `${kind}, ${heads} heads of ${headDim}${kvHeads === heads ? '' : ` over ${kvHeads}`}, ${reach}`;
}

async function readTokenizer(folder: string): Promise<Inspection['tokenizer']> {
  if (!existsSync(join(folder, 'tokenizer.json'))) return null;
  const tokenizer = await Tokenizer.load(folder);
  const named = (id: number | undefined) => (id === undefined ? null : (tokenizer.token(id) ?? null));
  return {
    vocabSize: tokenizer.vocabSize,
    special: {
      bos: named(tokenizer.bosId),
      eos: named(tokenizer.eosId),
      pad: named(tokenizer.padId),
      unk: named(tokenizer.unkId),
    },
    endOfTurn: tokenizer.eosIds.map((id) => named(id) ?? String(id)),
    chatTemplate: tokenizer.chatTemplate !== undefined,
  };
}
