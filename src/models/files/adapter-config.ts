/**
 * Reads and writes PEFT's adapter_config.json. A field that asks for something attune does not support is refused by
 * name. An unknown field is refused too, unless its value is null, false or empty.
 */
import { UserError } from '../../errors.ts';
import type { HeadKind } from '../decoder/head.ts';
import type { LoraConfig, LoraOptions } from '../lora/config.ts';
import { isScoreHead } from '../lora/lora.ts';

/** The version of PEFT whose fields are listed here. */
const PEFT_VERSION = '0.21.0';

export interface AdapterSource {
  base: string | null;
  revision: string | null;
  head: HeadKind | null;
  transposed: boolean;
}

/** Every field that PEFT writes. */
export function toPeftConfig(config: LoraConfig, source: AdapterSource): Record<string, unknown> {
  const { excludeModules, layersToTransform, targetModules, modulesToSave, rankPattern, alphaPattern } = config;
  const saved = modulesToSave.filter((name) => !isScoreHead(name));
  const withHead = source.head === 'reward' || source.head === 'classes' ? ['classifier', 'score', ...saved] : saved;
  return {
    alora_invocation_tokens: null,
    alpha_pattern: alphaPattern,
    arrow_config: null,
    auto_mapping: null,
    base_model_name_or_path: source.base,
    bias: config.bias,
    corda_config: null,
    ensure_weight_tying: false,
    eva_config: null,
    exclude_modules: excludeModules ?? null,
    fan_in_fan_out: source.transposed,
    inference_mode: true,
    init_lora_weights: true,
    kasa_config: null,
    layer_replication: null,
    layers_pattern: null,
    layers_to_transform: layersToTransform ?? null,
    loftq_config: {},
    lora_alpha: config.alpha,
    lora_bias: false,
    lora_dropout: config.dropout,
    lora_ga_config: null,
    megatron_config: null,
    megatron_core: 'megatron.core',
    modules_to_save: withHead.length > 0 ? withHead : null,
    monteclora_config: null,
    peft_type: 'LORA',
    peft_version: PEFT_VERSION,
    qalora_group_size: 16,
    r: config.r,
    rank_pattern: rankPattern,
    revision: source.revision,
    target_modules: targetModules,
    target_parameters: null,
    task_type: source.head === 'reward' ? 'SEQ_CLS' : source.head === 'classes' ? 'TOKEN_CLS' : 'CAUSAL_LM',
    trainable_token_indices: null,
    use_bdlora: null,
    use_dora: config.useDora,
    use_qalora: false,
    use_rslora: config.useRslora,
    velora_config: null,
  };
}

/** Fields that are read, or that do not affect the result. */
const KNOWN = new Set([
  ...['alpha_pattern', 'auto_mapping', 'base_model_name_or_path', 'bias', 'exclude_modules', 'fan_in_fan_out'],
  ...['inference_mode', 'init_lora_weights', 'layers_pattern', 'layers_to_transform', 'lora_alpha', 'lora_dropout'],
  ...['megatron_core', 'modules_to_save', 'peft_type', 'peft_version', 'qalora_group_size', 'r', 'rank_pattern'],
  ...['revision', 'target_modules', 'task_type', 'use_dora', 'use_rslora', 'eva_config', 'runtime_config'],
]);

/** Initialisations that leave the base unchanged; the others (PiSSA, OLoRA, LoftQ…) change it too. */
const PLAIN_STARTS = [true, false, null, undefined, 'gaussian', 'orthogonal', 'eva'];
const TASKS = ['CAUSAL_LM', 'SEQ_CLS', 'TOKEN_CLS', 'FEATURE_EXTRACTION', null, undefined];

export interface PeftConfig {
  options: LoraOptions;
  base: string | null;
  revision: string | null;
  task: string | null;
}

const isText = (value: unknown) => typeof value === 'string';
const isTexts = (value: unknown) => Array.isArray(value) && value.every(isText);
const isTextOrTexts = (value: unknown) => isText(value) || isTexts(value);
const isNumbers = (value: unknown) =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.values(value).every(Number.isFinite);

/** The kind of value that a field must have if given. */
const KINDS: Record<string, [kind: string, holds: (value: unknown) => boolean]> = {
  base_model_name_or_path: ['a name', isText],
  revision: ['a name', isText],
  target_modules: ['a name or a list of names', isTextOrTexts],
  exclude_modules: ['a name or a list of names', isTextOrTexts],
  modules_to_save: ['a list of names', isTexts],
  layers_to_transform: ['a whole number or a list of them', (value) => [value].flat().every(Number.isSafeInteger)],
  rank_pattern: ['numbers by name', isNumbers],
  alpha_pattern: ['numbers by name', isNumbers],
};

export function fromPeftConfig(json: Record<string, unknown>, path: string): PeftConfig {
  const refuse = (field: string, why: string): never => {
    throw new UserError(`${path}: ${field} is ${JSON.stringify(json[field])}: ${why}.`);
  };
  if (typeof json !== 'object' || json === null) throw new UserError(`${path} must hold a JSON object.`);
  if (json.peft_type !== 'LORA') refuse('peft_type', 'only LORA adapters are supported');
  if (!TASKS.includes(json.task_type as string)) refuse('task_type', `supported are ${TASKS.slice(0, 4).join(', ')}`);
  if (!PLAIN_STARTS.includes(json.init_lora_weights as boolean))
    refuse(
      'init_lora_weights',
      'it changes the base model as well. Convert the adapter with PEFT to a plain LoRA first',
    );
  for (const field of Object.keys(json))
    if (!KNOWN.has(field) && !saysNothing(json[field])) refuse(field, 'attune does not support this');
  for (const [field, [kind, holds]] of Object.entries(KINDS))
    if (json[field] !== null && json[field] !== undefined && !holds(json[field])) refuse(field, `it must be ${kind}`);
  const modules = json.target_modules as string | string[] | null | undefined;
  const layers = json.layers_to_transform as number | number[] | null | undefined;
  if (!saysNothing(json.layers_pattern) && !saysNothing(layers))
    refuse('layers_pattern', 'layers are found by their number; leave it out');
  const excluded = json.exclude_modules as string | string[] | null | undefined;
  return {
    options: {
      r: number(json, 'r', 8, path),
      alpha: number(json, 'lora_alpha', 8, path),
      dropout: number(json, 'lora_dropout', 0, path),
      ...(modules === null || modules === undefined ? {} : { targetModules: modules }),
      ...(saysNothing(excluded) ? {} : { excludeModules: excluded as string | string[] }),
      ...(saysNothing(layers) && layers !== 0 ? {} : { layersToTransform: [layers].flat() as number[] }),
      useRslora: json.use_rslora === true,
      useDora: json.use_dora === true,
      bias: (json.bias as LoraOptions['bias']) ?? 'none',
      modulesToSave: (json.modules_to_save as string[] | null) ?? [],
      rankPattern: (json.rank_pattern as Record<string, number> | null) ?? {},
      alphaPattern: (json.alpha_pattern as Record<string, number> | null) ?? {},
    },
    base: (json.base_model_name_or_path as string | null) || null,
    revision: (json.revision as string | null) ?? null,
    task: (json.task_type as string | null) ?? null,
  };
}

function number(json: Record<string, unknown>, field: string, fallback: number, path: string): number {
  const value = json[field] ?? fallback;
  if (typeof value !== 'number')
    throw new UserError(`${path}: ${field} must be a number, not ${JSON.stringify(value)}.`);
  return value;
}

function saysNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === false || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
