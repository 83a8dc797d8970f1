/**
 * Adapters in PEFT's files: adapter_config.json and adapter_model.safetensors, under PEFT's names.
 *
 *     saveAdapter(model, './adapter');            // peft.PeftModel.from_pretrained(base, './adapter')
 *     loadAdapter(model, './adapter');            // the reverse
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { AttuneError, UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import { adapterBaseFolder } from '../../hub/local.ts';
import { MissingFolder } from '../../hub/mistyped.ts';
import { type QuantType, quantTypes } from '../../nn/index.ts';
import {
  keep,
  noGrad,
  openSafetensors,
  type SafetensorsFile,
  scope,
  type Tensor,
  writeSafetensors,
  zeros,
} from '../../tensor/index.ts';
import { readHeader } from '../../tensor/safetensors/header.ts';
import { type HeadKind, type ScoreHead, scoreWeightName } from '../decoder/head.ts';
import type { Adapter } from '../lora/adapters.ts';
import { addLora, DEFAULT_ADAPTER } from '../lora/lora.ts';
import type { Model } from '../model.ts';
import { fromPeftConfig, type PeftConfig, toPeftConfig } from './adapter-config.ts';
import { headTensors } from './head.ts';

const CONFIG = 'adapter_config.json';
const WEIGHTS = 'adapter_model.safetensors';
/** The file of a value head. PEFT's CAUSAL_LM adapters have no such head and would fail on its tensors in the adapter's file. */
const VALUE_HEAD = 'value_head.safetensors';
const PREFIX = 'base_model.model.';
/** The metadata key of the weights' file that says how the base was quantised when the adapter was trained. */
const BASE_QUANT_TYPE = 'attune_base_quant_type';

/**
 * Saves all adapters of a model as PEFT lays them out: the first (or `default`) in the folder itself, each of the
 * others in a subfolder of its name.
 */
export function saveAdapters(model: Model, folder: string): void {
  const names = model.adapters?.names ?? [];
  const main = names.length === 1 || !names.includes(DEFAULT_ADAPTER) ? model.adapters?.active?.name : DEFAULT_ADAPTER;
  for (const name of names) saveAdapter(model, name === main ? folder : join(folder, name), name);
}

/** Saves one adapter, the active one unless named, with the model's head. */
export function saveAdapter(model: Model, folder: string, name = model.adapters?.active?.name): void {
  if (model.adapters === null || name === undefined) throw new UserError('This model has no active adapter to save.');
  const active = model.adapters.active?.name ?? null;
  makeFolder(folder);
  model.adapters.activate(name);
  try {
    const adapter = model.adapters.get(name);
    const [base, revision] = baseOf(model);
    const head = adapter.head?.kind ?? null;
    const config = toPeftConfig(adapter.config, { base, revision, head, transposed: model.names.transposed });
    scope(() => noGrad(() => writeWeights(folder, model, adapter)));
    writeFileSync(join(folder, CONFIG), `${JSON.stringify(config, null, 2)}\n`);
  } finally {
    model.adapters.activate(active);
  }
}

function writeWeights(folder: string, model: Model, adapter: Adapter): void {
  const tensors = new Map<string, Tensor>();
  for (const [name, tensor] of adapterTensors(model, adapter)) tensors.set(`${PREFIX}${name}`, tensor.detach());
  const { head } = adapter;
  if (head?.kind === 'value') writeSafetensors(join(folder, VALUE_HEAD), [[scoreWeightName, head.weight.detach()]]);
  else if (head !== null)
    for (const [name, tensor] of headTensors(model, head)) tensors.set(`${PREFIX}${name}`, tensor.detach());
  const metadata: Record<string, string> = { format: 'pt' };
  if (Object.keys(model.notes).length > 0) metadata.attune = JSON.stringify(model.notes);
  // The metadata carries it because PEFT's config has no field for it and refuses unknown fields.
  if (model.decoder.quantType !== null) metadata[BASE_QUANT_TYPE] = model.decoder.quantType;
  writeSafetensors(join(folder, WEIGHTS), tensors, metadata);
}

/** The active adapter's tensors by PEFT's names, without the prefix and the adapter's own name. */
function* adapterTensors(model: Model, adapter: Adapter): Iterable<[string, Tensor]> {
  for (const [name, tensor] of adapter.parameters()) {
    yield [name.replace(`.${adapter.name}.weight`, '.weight').replace(new RegExp(`\\.${adapter.name}$`), ''), tensor];
  }
  const replaced = new Set(adapter.replacements.flatMap(({ slot }) => slot.names));
  const adapted = new Set(adapter.projections.flatMap(({ parts }) => parts.map((part) => `${part.module}.bias`)));
  for (const weight of model.decoder.namedWeights()) {
    if (!replaced.has(weight.name)) continue;
    yield [
      adapted.has(weight.name) ? weight.name.replace(/\.bias$/, '.base_layer.bias') : weight.name,
      weight.tensor(),
    ];
  }
}

/** The adapter's base model: a hub name with its revision, or a folder. */
function baseOf(model: Model): [string | null, string | null] {
  if (model.hubName === undefined) return [model.folder ?? null, null];
  const [repo = '', revision] = model.hubName.split('@');
  return [repo, revision ?? null];
}

export interface StoredAdapter {
  config: PeftConfig;
  /** The folder, if the base is on this disk. */
  base: { name: string; folder?: string; quantType?: QuantType };
}

/** An adapter's config and the place of its base model; null if the folder holds no adapter. */
export function readAdapterConfig(folder: string): StoredAdapter | null {
  if (!existsSync(join(folder, CONFIG))) return null;
  const config = parseConfig(folder);
  if (config.base === null) {
    throw new UserError(
      `${join(folder, CONFIG)}: base_model_name_or_path is missing, so its base is not known. Write the base's name or folder there.`,
    );
  }
  const found = adapterBaseFolder(folder, config.base);
  if (found === resolve(folder)) throw new UserError(`${join(folder, CONFIG)}: the adapter names itself as its base.`);
  const name = config.revision === null ? config.base : `${config.base}@${config.revision}`;
  const quantType = baseQuantType(folder);
  return { config, base: { name, ...(found === undefined ? {} : { folder: found }), ...(quantType && { quantType }) } };
}

/** Opens an adapter's base. If it cannot be found, the error says which file names it. */
export async function openBase<T>(
  folder: string,
  { base }: StoredAdapter,
  open: (model: string) => Promise<T>,
): Promise<T> {
  if (base.folder !== undefined) return open(base.folder);
  const where = `${join(folder, CONFIG)}: its base_model_name_or_path "${base.name}" cannot be opened.`;
  return open(base.name).catch((error) => {
    if (error instanceof MissingFolder) throw new UserError(`${where} ${baseAdvice(error)}`);
    if (error instanceof AttuneError) error.message = `${where} ${error.message}`;
    throw error;
  });
}

/** What to do about a missing base, in terms of the file that names it. */
function baseAdvice({ fault, repo }: MissingFolder): string {
  const hub = repo === undefined ? '' : `, or "revision": "main" for the hub's repository of that name`;
  return `${fault} Write there where it lies now${hub}.`;
}

/** How the base was quantised in training; undefined if it was not. */
function baseQuantType(folder: string): QuantType | undefined {
  const path = join(folder, WEIGHTS);
  if (!existsSync(path)) return undefined;
  const said = readHeader(path).metadata[BASE_QUANT_TYPE];
  return quantTypes.find((type) => type === said);
}

function parseConfig(folder: string): PeftConfig {
  const path = join(folder, CONFIG);
  if (!existsSync(path)) throw new UserError(`${folder} holds no adapter: there is no ${CONFIG}.`);
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UserError(`${path} cannot be read: ${(error as Error).message}`);
  }
  return fromPeftConfig(json as Record<string, unknown>, path);
}

/** Puts the adapter in a folder on the model and activates it. */
export function loadAdapter(model: Model, folder: string, options: { name?: string } = {}): Adapter {
  const config = parseConfig(folder);
  const targetModules = config.options.targetModules ?? targetsIn(folder);
  const adapter = addLora(model, { ...config.options, targetModules, ...options });
  restoreAdapter(model, folder, config.task);
  return adapter;
}

/** Copies an adapter's saved weights (and head) into the active one, in place: for resuming. */
export function restoreAdapter(model: Model, folder: string, task: string | null = parseConfig(folder).task): void {
  const adapter = model.adapters?.active;
  if (adapter === null || adapter === undefined) throw new UserError('This model has no active adapter to restore.');
  using file = openWeights(folder);
  scope(() =>
    noGrad(() => {
      const unused = new Map(file.names.map((name) => [plainName(name, model), name]));
      for (const [name, tensor] of adapterTensors(model, adapter)) {
        const stored = take(unused, name) ?? take(unused, name.replace('.base_layer.bias', '.bias'));
        if (stored === undefined) throw new UserError(`${file.path}: there is no "${PREFIX}${name}".`);
        copyInto(tensor, file, stored);
      }
      restoreHead(model, folder, file, [take(unused, scoreWeightName), take(unused, 'score.bias')], task);
      if (unused.size > 0) {
        const shown = [...unused.values()].slice(0, 3).join(', ');
        throw new UserError(`${file.path}: ${unused.size} tensors have no place in this model: ${shown}.`);
      }
    }),
  );
}

function take(names: Map<string, string>, name: string): string | undefined {
  const found = names.get(name);
  names.delete(name);
  return found;
}

/** Adapters of a headless model (FEATURE_EXTRACTION) lack the base's prefix. */
function plainName(stored: string, model: Model): string {
  const name = stored.startsWith(PREFIX) ? stored.slice(PREFIX.length) : stored;
  const { basePrefix, head } = model.names;
  const known = [`${basePrefix}.`, `${head}.`, 'score.', 'classifier.'].some((prefix) => name.startsWith(prefix));
  const whole = known ? name : `${basePrefix}.${name}`;
  return whole.replace(/^classifier\./, 'score.');
}

function copyInto(tensor: Tensor, file: SafetensorsFile, stored: string): void {
  const source = file.tensor(stored);
  if (source.shape.join() !== tensor.shape.join())
    throw new UserError(`${file.path}: "${stored}" is [${source.shape}], but this model calls for [${tensor.shape}].`);
  tensor.copy_(source);
}

function restoreHead(
  model: Model,
  folder: string,
  file: SafetensorsFile,
  [stored, bias]: (string | undefined)[],
  task: string | null,
): void {
  const notes = file.metadata.attune === undefined ? {} : (JSON.parse(file.metadata.attune) as Record<string, unknown>);
  Object.assign(model.notes, notes);
  const value = join(folder, VALUE_HEAD);
  if (stored !== undefined) {
    const outputs = file.info(stored).shape[0] as number;
    const kind = (notes.head as HeadKind | undefined) ?? (task === 'TOKEN_CLS' ? 'classes' : 'reward');
    const head = headFor(model, kind, outputs);
    copyInto(head.weight, file, stored);
    if (bias !== undefined && file.tensor(bias).any().item() !== 0) {
      head.bias ??= keep(zeros([outputs], { device: model.device })).requiresGrad_();
      copyInto(head.bias, file, bias);
    }
  } else if (existsSync(value)) {
    using heads = openSafetensors(value);
    // The critic of a policy's training has a file of this name, and a head of its own that is not part of the model.
    if (!heads.names.includes(scoreWeightName)) return;
    const head = headFor(model, 'value', heads.info(scoreWeightName).shape[0] as number);
    copyInto(head.weight, heads, scoreWeightName);
  }
}

function headFor(model: Model, kind: HeadKind, outputs: number): ScoreHead {
  const { head } = model;
  return head !== null && head.kind === kind && head.outputs === outputs ? head : model.addHead(kind, outputs);
}

function openWeights(folder: string): SafetensorsFile {
  const path = join(folder, WEIGHTS);
  if (existsSync(path)) return openSafetensors(path);
  const pickled = existsSync(join(folder, 'adapter_model.bin'));
  throw new UserError(
    pickled
      ? `${folder} has its adapter only as Python pickle (adapter_model.bin), which runs whatever code is in it. Load it with PEFT and save it again as safetensors.`
      : `${folder}: there is no ${WEIGHTS}.`,
  );
}

/** The target modules, if the config does not list them: those whose matrices are in the file. */
function targetsIn(folder: string): string[] {
  using file = openWeights(folder);
  const ends = file.names.flatMap((name) => /([^.]+)\.lora_A\.weight$/.exec(name)?.[1] ?? []);
  return [...new Set(ends)];
}
