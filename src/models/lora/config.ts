/** The options of a LoRA adapter (Hu et al. 2021), and which modules of a decoder they select. */
import { suggestion, UserError } from '../../errors.ts';
import { patternRisk } from '../../pattern.ts';
import type { DType } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Projection } from '../decoder/projection.ts';
import type { Family, WeightNames } from '../families/spec.ts';

/** Rank, scale, targets and further settings of a LoRA adapter. */
export interface LoraOptions {
  /** The rank of the low-rank matrices. */
  r?: number;
  /** The change is scaled by alpha/r, or by alpha/√r with `useRslora` (Kalajdzievski 2023). */
  alpha?: number;
  /** Dropout on the adapter's input, in training. */
  dropout?: number;
  /**
   * Which modules to adapt: full names or their ends (`q_proj`, `self_attn.q_proj`), `all-linear`, or one regular expression
   * over full names. By default those of the model's family.
   */
  targetModules?: string | readonly string[];
  excludeModules?: string | readonly string[];
  useRslora?: boolean;
  /** DoRA (Liu et al. 2024): learns the length of each row of the matrix separately from its direction. */
  useDora?: boolean;
  /** Which of the base's biases are trained too: none, those of the adapted modules (`lora_only`), or all. */
  bias?: 'none' | 'all' | 'lora_only';
  /** Modules that are trained whole and saved with the adapter: embeddings, norms, the head (`score`, always included). */
  modulesToSave?: readonly string[];
  /** Ranks and alphas of some modules, by a regular expression at the end of their names. */
  rankPattern?: Readonly<Record<string, number>>;
  alphaPattern?: Readonly<Record<string, number>>;
  /** Adapt only these layers. */
  layersToTransform?: readonly number[];
  /** The name of the adapter among several on one base. */
  name?: string;
  /** The dtype of the adapter's parameters; float32 by default, whatever the base's dtype. */
  dtype?: DType;
}

/** The names of LoraOptions. */
export const loraOptionNames: Record<keyof LoraOptions, true> = {
  ...{ r: true, alpha: true, dropout: true, targetModules: true, excludeModules: true, useRslora: true, useDora: true },
  ...{ bias: true, modulesToSave: true, rankPattern: true, alphaPattern: true, layersToTransform: true },
  ...{ name: true, dtype: true },
};

export type LoraConfig = Required<Omit<LoraOptions, 'name' | 'excludeModules' | 'layersToTransform'>> &
  Pick<LoraOptions, 'excludeModules' | 'layersToTransform'>;

/** One module to adapt: a part of a projection. */
export interface Target {
  module: string;
  projection: Projection;
  part: number;
  r: number;
  scale: number;
}

/** The model that an adapter is put on: its decoder and names. */
export interface LoraBase {
  readonly decoder: Decoder;
  readonly family: Family;
  readonly names: WeightNames;
}

export function loraConfig(model: LoraBase, options: LoraOptions): LoraConfig {
  const { name: _, excludeModules, layersToTransform, ...given } = options;
  const config: LoraConfig = {
    r: given.r ?? 16,
    alpha: given.alpha ?? 32,
    dropout: given.dropout ?? 0.05,
    targetModules: given.targetModules ?? model.family.loraTargets,
    useRslora: given.useRslora ?? false,
    useDora: given.useDora ?? false,
    bias: given.bias ?? 'none',
    modulesToSave: given.modulesToSave ?? [],
    rankPattern: given.rankPattern ?? {},
    alphaPattern: given.alphaPattern ?? {},
    dtype: given.dtype ?? 'float32',
    ...(excludeModules === undefined ? {} : { excludeModules }),
    ...(layersToTransform === undefined ? {} : { layersToTransform }),
  };
  for (const r of [config.r, ...Object.values(config.rankPattern)])
    if (!Number.isInteger(r) || r < 1) throw new UserError(`LoRA: the rank must be a whole number above 0, not ${r}.`);
  for (const alpha of [config.alpha, ...Object.values(config.alphaPattern)])
    if (!Number.isFinite(alpha)) throw new UserError(`LoRA: alpha must be a number, not ${alpha}.`);
  if (!(config.dropout >= 0 && config.dropout < 1))
    throw new UserError(`LoRA: dropout must be at least 0 and below 1, not ${config.dropout}.`);
  if (!['none', 'all', 'lora_only'].includes(config.bias))
    throw new UserError(`LoRA: bias must be none, all or lora_only, not "${config.bias}".`);
  return config;
}

/** The modules to adapt, in the decoder's order. A name that matches no module is an error. */
export function loraTargets(model: LoraBase, config: LoraConfig): Target[] {
  const { decoder } = model;
  const modules = [...decoder.projections()].flatMap((projection) =>
    projection.parts.map(({ name }, part) => ({ module: name, projection, part })),
  );
  const names = modules.map(({ module }) => module);
  const wanted = matcher(config.targetModules, names, 'target_modules');
  const excluded =
    config.excludeModules === undefined ? () => false : matcher(config.excludeModules, names, 'exclude_modules');
  const layers = config.layersToTransform === undefined ? null : new Set(config.layersToTransform);
  const found = modules.filter(
    ({ module }) => wanted(module) && !excluded(module) && (layers === null || layers.has(layerOf(module))),
  );
  if (found.length === 0)
    throw new UserError('LoRA: nothing is left to adapt after exclude_modules and layers_to_transform.');
  return found.map((target) => {
    const r = patterned(config.rankPattern, target.module) ?? config.r;
    const alpha = patterned(config.alphaPattern, target.module) ?? config.alpha;
    return { ...target, r, scale: config.useRslora ? alpha / Math.sqrt(r) : alpha / r };
  });
}

function matcher(
  wanted: string | readonly string[],
  names: readonly string[],
  field: string,
): (name: string) => boolean {
  const list = typeof wanted === 'string' ? listed(wanted) : wanted;
  if (list === 'all-linear') return () => true;
  if (typeof list === 'string') {
    const pattern = expression(`^(?:${list})$`, field);
    if (!names.some((name) => pattern.test(name))) throw noSuchModule(list, names, field);
    return (name) => pattern.test(name);
  }
  const matches = (name: string, end: string) => name === end || name.endsWith(`.${end}`);
  for (const end of list) if (!names.some((name) => matches(name, end))) throw noSuchModule(end, names, field);
  if (list.length === 0) throw new UserError(`LoRA: ${field} names no module. There are: ${ends(names).join(', ')}.`);
  return (name) => list.some((end) => matches(name, end));
}

/** A string in PEFT's form: names, `all-linear`, or a regular expression. */
function listed(text: string): string | string[] {
  if (text.toLowerCase() === 'all-linear') return 'all-linear';
  return /^[\w.,\s-]+$/.test(text) ? text.split(',').map((name) => name.trim()) : text;
}

/** Most open-ended parts such as `.*` in a pattern. Module names are short, so more are allowed than for long texts. */
const MOST_OPEN = 4;

function expression(source: string, field: string): RegExp {
  const risk = patternRisk(source, MOST_OPEN);
  if (risk !== undefined) throw new UserError(`LoRA: ${field}: the regular expression could run for ever (${risk}).`);
  try {
    return new RegExp(source);
  } catch (error) {
    throw new UserError(`LoRA: ${field} is not a regular expression (${(error as Error).message}).`);
  }
}

function noSuchModule(name: string, names: readonly string[], field: string): UserError {
  const known = ends(names);
  return new UserError(
    `LoRA: ${field}: no linear module of this model matches "${name}".${suggestion(name, known)} ` +
      `There are: ${known.join(', ')} (or whole names such as ${names[0]}).`,
  );
}

const ends = (names: readonly string[]) => [...new Set(names.map((name) => name.slice(name.lastIndexOf('.') + 1)))];

/** The layer of a module: the first number between two dots in its name. */
const layerOf = (module: string) => Number(/\.(\d+)\./.exec(module)?.[1] ?? -1);

function patterned(patterns: Readonly<Record<string, number>>, module: string): number | undefined {
  for (const [pattern, value] of Object.entries(patterns))
    if (expression(`^(?:.*\\.)?(?:${pattern})$`, 'rank_pattern or alpha_pattern').test(module)) return value;
  return undefined;
}
