/**
 * Prepares a training: loads the model and its tokenizer and opens the data.
 *
 *     const { model, tokenizer, device } = await loadForTraining(config, { head: { kind: 'reward', outputs: 1 } });
 *     const { train, validation } = await openForTraining(config, { shape: 'preference' });
 *     …
 *     await saveForTraining(model, tokenizer, folder);        // transformers (or PEFT) loads it
 *     restoreForTraining(model, folder);                      // copies the weights back, in place
 */
import { statSync } from 'node:fs';
import { type Dataset, type DatasetOptions, type DatasetSpec, openDataset, type Shape } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { datasetHub } from '../hub/hub.ts';
import { readConfig, readConfigFile } from '../models/files/decoder.ts';
import { checkTokenizer, checkVocabulary } from '../models/files/tokenizer.ts';
import {
  addLora,
  deviceOf,
  dtypeOf,
  type HeadKind,
  initModel,
  type LoraOptions,
  loadModel,
  loadModelFolder,
  loadTokenizer,
  type Model,
  type QuantType,
  restoreAdapter,
  saveModel,
} from '../models/index.ts';
import { loraBiases } from '../models/lora/lora.ts';
import type { Progress } from '../progress.ts';
import { type Device, type DType, noGrad, scope, seed } from '../tensor/index.ts';
import type { Tokenizer } from '../text/index.ts';
import { columnsOf } from './fields.ts';
import { rewardModelAsPolicy } from './policy-model.ts';

export interface ModelConfig extends LoraConfig {
  model: string;
  tokenizer?: string;
  /** Trains fresh weights of this config.json's shape instead of `model`. */
  fromConfig?: string;
  dtype: 'auto' | 'float32' | 'bfloat16';
  device: string;
  seed: number;
}

/** Adapters, named as in configs. */
export interface LoraConfig {
  lora: boolean;
  /** QLoRA: the quantisation of the adapters' base. */
  quantType?: QuantType;
  loraR: number;
  loraAlpha: number;
  loraDropout: number;
  loraTargetModules?: string[];
  loraBias: 'none' | 'all' | 'lora_only';
  useRslora: boolean;
  useDora: boolean;
}

export interface SetupOptions {
  /** A new head from N(0, 0.02²), unless the model has one of the same kind and size. */
  head?: { kind: HeadKind; outputs: number };
  progress?: Progress;
  /** Refuses given options that would have no effect on this model. */
  refuse?: (options: readonly string[], because: string) => void;
}

export interface Setup {
  model: Model;
  tokenizer: Tokenizer;
  device: Device;
}

/** Loads a model for training. The initial head and adapters depend on the seed alone. */
export async function loadForTraining(config: ModelConfig, options: SetupOptions = {}): Promise<Setup> {
  checkQlora(config);
  const device = deviceOf(config.device);
  const dtype = dtypeOf(config.dtype, device);
  const tokenizer = await loadTokenizer(config, options.progress);
  seed(config.seed);
  const { quantType } = config;
  const model =
    config.fromConfig === undefined
      ? await loadModel(config.model, { dtype, device, quantType, progress: options.progress })
      : freshModel(config.fromConfig, tokenizer, { dtype, device, seed: config.seed });
  using freed = new DisposableStack();
  freed.use(model);
  checkVocabulary(model, tokenizer);
  await checkTokenizer(config, tokenizer);
  if (options.head === undefined && model.head !== null) throw await rewardModelAsPolicy(config.model);
  if (options.head !== undefined) {
    const { kind, outputs } = options.head;
    if (model.head?.kind !== kind || model.head.outputs !== outputs) {
      seed(config.seed);
      model.addHead(kind, outputs);
    }
  }
  makeTrainable(model, config, options.refuse);
  model.train();
  freed.move();
  return { model, tokenizer, device };
}

/** Checks that the other options allow `--quant-type`. */
export function checkQlora({ quantType, lora, fromConfig }: ModelConfig): void {
  if (quantType === undefined) return;
  if (!lora)
    throw new UserError(
      `--quant-type ${quantType}: weights in ${quantType === 'int4' ? 4 : 8} bits stay as they are; train adapters on them with --lora.`,
    );
  if (fromConfig !== undefined)
    throw new UserError(`--quant-type ${quantType}: fresh weights (--from-config) have to be trained whole first.`);
}

const adapterOptions = [
  ...(['loraR', 'loraAlpha', 'loraDropout', 'loraTargetModules', 'loraBias', 'useRslora', 'useDora'] as const),
];

/** Makes all weights trainable, or adds adapters to a frozen base. An existing adapter is trained further. */
function makeTrainable(model: Model, config: ModelConfig, refuse?: SetupOptions['refuse']): void {
  model.head?.weight.requiresGrad_();
  checkTrainable(model, config, { hasAdapter: model.adapters !== null, stored: model.decoder.quantType, refuse });
  if (model.adapters !== null) return;
  model.decoder.requiresGrad_();
  if (!config.lora) return;
  seed(config.seed);
  addLora(model, loraOptions(config));
}

/** Refuses options that do not fit the model. Plans call it too, with a model on `meta`. */
export function checkTrainable(
  model: Model,
  config: ModelConfig,
  is: { hasAdapter: boolean; stored: QuantType | null; refuse: SetupOptions['refuse'] },
): void {
  const { hasAdapter, stored, refuse } = is;
  if (hasAdapter) {
    refuse?.(adapterOptions, `${config.model} has an adapter already, which is trained further as it is`);
    return;
  }
  if (stored !== null && !config.lora)
    throw new UserError(
      `${config.model}: its weights are ${stored} and stay as they are; train adapters on them with --lora.`,
    );
  if (config.lora && loraBiases(model, loraOptions(config)) === 0)
    refuse?.(['loraBias'], 'what it would train has no biases');
}

/** Whether the model's own layers have dropout. That of adapters is separate. */
export function hasDropout({ decoder: { spec } }: Model): boolean {
  return [...Object.values(spec.dropout), spec.attention.dropout].some((share) => Number(share) > 0);
}

/** The adapter options of a config. */
export function loraOptions(config: ModelConfig): LoraOptions {
  const { loraTargetModules: names } = config;
  return {
    r: config.loraR,
    alpha: config.loraAlpha,
    dropout: config.loraDropout,
    // a single value may also be `all-linear` or a regular expression
    targetModules: names?.length === 1 ? names[0] : names,
    bias: config.loraBias,
    useRslora: config.useRslora,
    useDora: config.useDora,
  };
}

export async function saveForTraining(model: Model, tokenizer: Tokenizer, folder: string): Promise<void> {
  saveModel(model, folder);
  await tokenizer.save(folder);
}

/** Copies a checkpoint's weights, including adapters and head, into an existing model. */
export function restoreForTraining(model: Model, folder: string): void {
  if (model.adapters !== null) {
    restoreAdapter(model, folder);
    return;
  }
  using saved = loadModelFolder(folder, { dtype: model.decoder.dtype, device: 'cpu' });
  const weights = new Map(saved.parameters());
  scope(() =>
    noGrad(() => {
      for (const [name, parameter] of model.parameters()) {
        const source = weights.get(name);
        if (source === undefined) throw new UserError(`${folder}: the checkpoint has no "${name}".`);
        if (source.shape.join() !== parameter.shape.join()) {
          throw new UserError(`${folder}: "${name}" is [${source.shape}], but this model's is [${parameter.shape}].`);
        }
        parameter.copy_(source);
      }
    }),
  );
  Object.assign(model.notes, saved.notes);
}

function freshModel(
  path: string,
  tokenizer: Tokenizer,
  options: { dtype: DType; device: Device; seed: number },
): Model {
  return initModel(freshConfig(path, tokenizer), { ...options, source: path });
}

/** The config of a model trained from scratch: a config.json, or the one in a folder, with the tokenizer's own ids. */
export function freshConfig(path: string, tokenizer: Tokenizer): Record<string, unknown> {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined)
    throw new UserError(
      `--from-config ${path} does not exist: name a config.json as transformers writes it, or a folder with one.`,
    );
  const config = found.isDirectory() ? readConfig(path) : readConfigFile(path);
  // Defaults to the tokenizer's vocabulary. The config may ask for a larger one.
  const vocabulary = Number(config.vocab_size ?? tokenizer.vocabSize);
  const ids = { eos_token_id: tokenizer.eosId, pad_token_id: tokenizer.padId, bos_token_id: tokenizer.bosId ?? null };
  return { ...config, vocab_size: vocabulary, ...ids };
}

export interface DataConfig {
  dataset?: string;
  split?: string;
  subset?: string;
  evalDataset?: string;
  evalSplit?: string;
  validationSplit: number;
  subsetSize?: number;
  columns?: Partial<Record<string, string>>;
  onBadRow: 'fail' | 'skip';
  seed: number;
}

/** In-memory rows, which replace the datasets named in the config. */
export interface GivenData {
  dataset?: DatasetSpec;
  evalDataset?: DatasetSpec;
}

/** The training data's source. Read before the model is loaded, which may be a long download. */
export function sourceOf(config: { dataset?: string }, given: GivenData = {}): DatasetSpec {
  const source = given.dataset ?? config.dataset;
  if (source === undefined) throw new UserError('There is no data to train on: name some with --dataset.');
  return source;
}

/** Training and held-out examples. `validation` is undefined if nothing is held out. */
export async function openForTraining<S extends Shape>(
  config: DataConfig,
  options: { given?: GivenData; progress?: Progress } & DatasetOptions<S>,
): Promise<{ train: Dataset<S>; validation: Dataset<S> | undefined }> {
  const { given = {}, progress, ...reading } = options;
  const source = sourceOf(config, given);
  const shared: DatasetOptions<S> = {
    ...reading,
    columns: columnsOf(config),
    onBadRow: config.onBadRow,
    seed: config.seed,
    hub: datasetHub({ progress }),
  };
  const open = (spec: DatasetSpec, more: DatasetOptions<S>) =>
    openDataset(spec, { ...shared, ...more }) as Promise<Dataset<S>>;
  const { split, subset, subsetSize: maxSamples } = config;
  const whole = await open(await rereadable(source), { split, subset, maxSamples });
  const held = given.evalDataset ?? config.evalDataset;
  if (held !== undefined) {
    return { train: whole, validation: await open(await rereadable(held), { split: config.evalSplit }) };
  }
  if (config.validationSplit === 0) return { train: whole, validation: undefined };
  const parts = await whole.holdOut(config.validationSplit, config.seed);
  if (parts.validation === undefined) {
    const note = `${whole.name} has fewer than two different prompts: nothing is held out, and nothing is evaluated`;
    progress?.start('splitting').done(note);
  }
  return parts;
}

/** Both sides of a split read all rows, so a source that can be read only once is first collected in memory. */
async function rereadable(spec: DatasetSpec): Promise<DatasetSpec> {
  if (typeof spec === 'string' || typeof spec === 'function' || Array.isArray(spec)) return spec;
  return Array.fromAsync(spec);
}
