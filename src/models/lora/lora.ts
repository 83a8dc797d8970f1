/**
 * LoRA adapters on a model: the base is frozen; only the adapter, the head and the requested biases are trained.
 *
 *     addLora(model, { r: 16, alpha: 32, dropout: 0.05 });
 *     const optimiser = new AdamW(model.trainable());
 *     const reference = withoutAdapters(model, () => logprobs(model));     // the base, bit for bit
 *     saveModel(model, './adapter');                                       // PEFT loads it
 *     mergeAdapters(model);
 *     saveModel(model, './merged');                                        // a plain model
 */
import { checkNames, suggestion, UserError } from '../../errors.ts';
import { kaiming } from '../../nn/index.ts';
import { empty, keep, noGrad, scope, type Tensor, zeros } from '../../tensor/index.ts';
import type { Projection } from '../decoder/projection.ts';
import { thenRestore } from '../decoder/temporarily.ts';
import { type AdaptedModel, Adapter, Adapters, type Replacement, replacement, slotsOf } from './adapters.ts';
import {
  type LoraBase,
  type LoraConfig,
  type LoraOptions,
  loraConfig,
  loraOptionNames,
  loraTargets,
  type Target,
} from './config.ts';
import { type LoraPart, ProjectionLora } from './projection.ts';

export type { LoraOptions } from './config.ts';

/** PEFT's name for an adapter that has none. */
export const DEFAULT_ADAPTER = 'default';

/** A model that adapters can be put on. */
export interface AdapterHost extends LoraBase, AdaptedModel {
  adapters: Adapters | null;
}

/** Puts a new adapter on the model and activates it. A is Kaiming-uniform from the seeded generator, B is zero. */
export function addLora(model: AdapterHost, options: LoraOptions = {}): Adapter {
  checkNames('addLora', options, Object.keys(loraOptionNames));
  const config = loraConfig(model, options);
  const targets = loraTargets(model, config);
  const name = options.name ?? DEFAULT_ADAPTER;
  const adapters = model.adapters ?? new Adapters(model);
  adapters.checkFree(name);
  const before = adapters.active?.name ?? null;
  adapters.activate(null); // the new adapter copies tensors of the base
  model.decoder.requiresGrad_(false);
  let adapter: Adapter;
  try {
    const replaced = replacements(model, config);
    adapter = new Adapter(name, config, projections(model, config, targets), replaced, adapters.headForNew());
  } catch (error) {
    adapters.activate(before);
    throw error;
  }
  model.adapters = adapters;
  adapters.add(adapter);
  return adapter;
}

function projections(model: AdapterHost, config: LoraConfig, targets: readonly Target[]): ProjectionLora[] {
  const { decoder } = model;
  const grouped = Map.groupBy(targets, (target) => target.projection);
  return Array.from(grouped, ([projection, own]) => {
    const parts = own.map((target) => freshPart(projection, target, config));
    const lora = new ProjectionLora(projection, parts, config.dropout, () => decoder.training);
    if (config.useDora) lora.startMagnitudes();
    return lora;
  });
}

function freshPart(projection: Projection, target: Target, config: LoraConfig): LoraPart {
  const { part, r, module, scale } = target;
  const { device } = projection;
  const outputs = projection.parts[part]?.outputs as number;
  const trained = (tensor: Tensor) => keep(tensor.to(config.dtype)).requiresGrad_();
  return noGrad(() =>
    scope(() => {
      const bias = config.bias === 'lora_only' ? projection.biasOf(part) : null;
      return {
        module,
        part,
        scale,
        a: trained(kaiming(empty([r, projection.inputs], { device }), projection.inputs)),
        b: trained(zeros([outputs, r], { device })),
        magnitude: config.useDora ? trained(zeros([outputs], { device })) : null,
        bias: bias === null ? null : keep(bias.detach().clone()).requiresGrad_(),
      };
    }),
  );
}

/** The base's tensors that the adapter trains whole: biases with `all`, and modules_to_save. */
function replacements(model: AdapterHost, config: LoraConfig): Replacement[] {
  const slots = [...slotsOf(model.decoder)];
  const modules = savedModules(model, config);
  const wanted = slots.filter(({ names }) =>
    names.some((name) => (config.bias === 'all' && name.endsWith('.bias')) || modules.has(moduleOf(name))),
  );
  return wanted.map(replacement);
}

/** How many biases an adapter with these options would train. */
export function loraBiases(model: AdapterHost, options: LoraOptions): number {
  const config = loraConfig(model, options);
  if (config.bias === 'none') return 0;
  if (config.bias === 'lora_only')
    return loraTargets(model, config).filter(({ projection }) => projection.bias !== null).length;
  return [...slotsOf(model.decoder)].filter(({ names }) => names.some((name) => name.endsWith('.bias'))).length;
}

/** The full names in `modulesToSave`, without the score head, which every adapter saves anyway. */
function savedModules(model: AdapterHost, config: LoraConfig): Set<string> {
  const inProjections = new Set([...model.decoder.projections()].flatMap(({ parts }) => parts.map(({ name }) => name)));
  const known = [...slotsOf(model.decoder)]
    .flatMap(({ names }) => names.map(moduleOf))
    .filter((name) => !inProjections.has(name));
  const found = new Set<string>();
  for (const wanted of config.modulesToSave) {
    if (isScoreHead(wanted)) continue;
    const own = known.filter((name) => name === wanted || name.endsWith(`.${wanted}`));
    if (own.length === 0) {
      const ends = [...new Set(known.map((name) => name.slice(name.lastIndexOf('.') + 1)))];
      throw new UserError(
        `LoRA: modules_to_save: "${wanted}" cannot be saved whole.${suggestion(wanted, ends)} These can: score, ${ends.join(', ')}.`,
      );
    }
    if (model.decoder.spec.tied && own.includes(model.names.embedding)) {
      throw new UserError(
        `LoRA: modules_to_save: this model's head shares the weights of "${model.names.embedding}", so that it cannot be trained apart.`,
      );
    }
    for (const name of own) found.add(name);
  }
  return found;
}

/** Whether a module is the score head. PEFT lists both names for every classifier. */
export const isScoreHead = (module: string) => module === 'score' || module === 'classifier';

const moduleOf = (tensor: string) => tensor.slice(0, tensor.lastIndexOf('.'));

/** Makes the named adapter the active one. */
export function setAdapter(model: AdapterHost, name: string): void {
  adaptersOf(model).activate(name);
}

/**
 * Runs `body` on the bare base, which serves as the reference model without a second copy. If `body` is asynchronous,
 * the adapter is activated again when it settles; nothing else may use the model until then.
 */
export function withoutAdapters<T>(model: AdapterHost, body: () => T): T {
  const { adapters } = model;
  const name = adapters?.active?.name;
  if (adapters === null || name === undefined) return body();
  adapters.activate(null);
  return thenRestore(body, () => adapters.activate(name));
}

/**
 * Adds the active adapter's change to the base's weights: the model is then as fast as the base and is saved as a plain
 * one. A quantised base is dequantised first.
 */
export function mergeAdapters(model: AdapterHost): void {
  adaptersOf(model).merge();
}

/** Undoes `mergeAdapters`: the weights are those of the base to within rounding. */
export function unmergeAdapters(model: AdapterHost): void {
  model.adapters?.unmerge();
}

/** Drops the adapters: a merged one stays in the weights for good, otherwise the bare base is left. */
export function unloadAdapters(model: AdapterHost): void {
  model.adapters?.unload();
  model.adapters = null;
}

function adaptersOf(model: AdapterHost): Adapters {
  if (model.adapters === null) throw new UserError('This model has no adapters (addLora puts one on it).');
  return model.adapters;
}
