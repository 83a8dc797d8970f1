/**
 * Low-rank adapters on a model: the base is frozen and only the adapters, the head and the biases asked for are trained.
 *
 *     addLora(model, { r: 16, alpha: 32, dropout: 0.05 });
 *     const optimiser = new AdamW(model.trainable());
 *     const reference = withoutAdapters(model, () => logprobs(model));     // the base, bit for bit
 *     saveModel(model, './adapter');                                       // PEFT loads it
 *     mergeAdapters(model);
 *     saveModel(model, './merged');                                        // a plain model
 */
import { suggestion, UserError } from '../../errors.ts';
import { kaiming } from '../../nn/index.ts';
import { empty, keep, noGrad, scope, type Tensor, zeros } from '../../tensor/index.ts';
import type { Projection } from '../decoder/projection.ts';
import { type AdaptedModel, Adapter, Adapters, type Replacement, replacement, slotsOf } from './adapters.ts';
import { type LoraBase, type LoraConfig, type LoraOptions, loraConfig, loraTargets, type Target } from './config.ts';
import { type LoraPart, ProjectionLora } from './projection.ts';

export type { LoraOptions } from './config.ts';

/** PEFT's name for an adapter that was given none. */
export const DEFAULT_ADAPTER = 'default';

/** A model that adapters can be put on. */
export interface AdapterHost extends LoraBase, AdaptedModel {
  adapters: Adapters | null;
}

/** Puts a fresh adapter on the model and makes it the active one. A is Kaiming-uniform from the seeded generator, B zero. */
export function addLora(model: AdapterHost, options: LoraOptions = {}): Adapter {
  const config = loraConfig(model, options);
  const targets = loraTargets(model, config);
  const name = options.name ?? DEFAULT_ADAPTER;
  const adapters = model.adapters ?? new Adapters(model);
  adapters.checkFree(name);
  const before = adapters.active?.name ?? null;
  adapters.activate(null); // what it copies is the base's
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

/** Whole names of the modules to save that are not the score head, which every adapter saves by itself. */
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

/** PEFT lists both names for every classifier. */
export const isScoreHead = (module: string) => module === 'score' || module === 'classifier';

const moduleOf = (tensor: string) => tensor.slice(0, tensor.lastIndexOf('.'));

/** Makes the named adapter the one in use. */
export function setAdapter(model: AdapterHost, name: string): void {
  adaptersOf(model).activate(name);
}

/**
 * Runs `body` on the bare base: the reference model, for free. Returns what it returns; with an asynchronous `body` the
 * adapters come back when it has settled, and nobody else may use the model until then.
 */
export function withoutAdapters<T>(model: AdapterHost, body: () => T): T {
  const { adapters } = model;
  const name = adapters?.active?.name;
  if (adapters === null || name === undefined) return body();
  const restore = () => adapters.activate(name);
  adapters.activate(null);
  let result: T;
  try {
    result = body();
  } catch (error) {
    restore();
    throw error;
  }
  if (result instanceof Promise) return result.finally(restore) as T;
  restore();
  return result;
}

/** Writes the active adapter's change into the base's weights: as fast as the base, and saved as a plain model. A quantised base is dequantised first. */
export function mergeAdapters(model: AdapterHost): void {
  adaptersOf(model).merge();
}

/** Takes it out again; the weights are the base's to within rounding. */
export function unmergeAdapters(model: AdapterHost): void {
  model.adapters?.unmerge();
}

/** Drops the adapters: a merged one stays in the weights for good, otherwise the base is left. */
export function unloadAdapters(model: AdapterHost): void {
  model.adapters?.unload();
  model.adapters = null;
}

function adaptersOf(model: AdapterHost): Adapters {
  if (model.adapters === null) throw new UserError('This model has no adapters (addLora puts one on it).');
  return model.adapters;
}
