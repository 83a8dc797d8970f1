/** Saves a model as a Hugging Face folder: config.json, safetensors (in shards if large) and their index. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { dtypeBytes, noGrad, scope, type Tensor, writeSafetensors } from '../../tensor/index.ts';
import type { Model } from '../model.ts';
import { saveAdapters } from './adapter.ts';
import { quantisationConfig, quantisedTensors } from './bitsandbytes.ts';
import { headTensors } from './head.ts';

const SHARD_BYTES = 5e9; // transformers' default

/** Saves a model as a Hugging Face folder. For a model with adapters only the adapters are saved, in PEFT's layout. */
export function saveModel(model: Model, folder: string): void {
  const { adapters } = model;
  if (adapters === null || adapters.active === null || adapters.merged) savePlainModel(model, folder);
  else saveAdapters(model, folder);
}

function savePlainModel(model: Model, folder: string): void {
  makeFolder(folder);
  const config = scope(() => configOf(model));
  writeFileSync(join(folder, 'config.json'), `${JSON.stringify(config, null, 2)}\n`);
  scope(() => noGrad(() => writeShards(folder, weightsOf(model))));
}

/** Every weight under its checkpoint name and in the checkpoint's layout; quantised weights in bitsandbytes' layout. */
export function weightsOf(model: Model): Map<string, Tensor> {
  const { names, decoder, head } = model;
  const blocks = new Set<string>();
  for (const projection of decoder.projections())
    for (const part of projection.parts) blocks.add(`${part.name}.weight`);
  const weights = new Map<string, Tensor>();
  for (const weight of decoder.namedWeights()) {
    const tensor = weight.tensor().detach();
    weights.set(weight.name, names.transposed && blocks.has(weight.name) ? tensor.t() : tensor);
  }
  for (const { quantised, parts } of decoder.projections())
    for (const [i, part] of parts.entries())
      if (quantised !== null)
        for (const [name, tensor] of quantisedTensors(`${part.name}.weight`, quantised.part(i), decoder.dtype))
          weights.set(name, tensor);
  if (head !== null) for (const [name, tensor] of headTensors(model, head)) weights.set(name, tensor.detach());
  return weights;
}

function configOf(model: Model): Record<string, unknown> {
  const { config, family, head, notes, decoder } = model;
  const { torch_dtype: _, attune: __, quantization_config: ___, ...rest } = config;
  const labels = head === null ? {} : labelFields(head.outputs);
  const { causal, sequence, token } = family.architectures;
  const architecture = head === null ? causal : head.kind === 'reward' ? (sequence ?? causal) : (token ?? causal);
  const kept = Object.keys(notes).length > 0 ? { attune: notes } : {};
  return { ...rest, ...labels, architectures: [architecture], dtype: decoder.dtype, ...quantisationOf(model), ...kept };
}

function quantisationOf({ decoder, names, head }: Model): Record<string, unknown> {
  const projections = [...decoder.projections()];
  const first = projections.find(({ quantised }) => quantised !== null)?.quantised;
  if (!first) return {};
  // Without a list transformers does not quantise the head; with one, the head must be on it.
  const plain = projections.filter(({ quantised }) => quantised === null).flatMap(({ parts }) => parts);
  const skipped = plain.length === 0 ? [] : [head === null ? names.head : 'score', ...plain.map(({ name }) => name)];
  return { quantization_config: quantisationConfig(first.part(0), decoder.dtype, skipped) };
}

function labelFields(count: number): Record<string, unknown> {
  const names = Array.from({ length: count }, (_, i) => `LABEL_${i}`);
  return {
    num_labels: count,
    id2label: Object.fromEntries(names.map((name, i) => [i, name])),
    label2id: Object.fromEntries(names.map((name, i) => [name, i])),
  };
}

function writeShards(folder: string, weights: Map<string, Tensor>): void {
  const shards: [string, Tensor][][] = [[]];
  let size = 0;
  let total = 0;
  for (const [name, tensor] of weights) {
    const bytes = tensor.numel * dtypeBytes[tensor.dtype];
    if (size > 0 && size + bytes > SHARD_BYTES) {
      shards.push([]);
      size = 0;
    }
    shards.at(-1)?.push([name, tensor]);
    size += bytes;
    total += bytes;
  }
  if (shards.length === 1) {
    writeSafetensors(join(folder, 'model.safetensors'), weights);
    return;
  }
  const map: Record<string, string> = {};
  shards.forEach((shard, i) => {
    const file = `model-${String(i + 1).padStart(5, '0')}-of-${String(shards.length).padStart(5, '0')}.safetensors`;
    writeSafetensors(join(folder, file), shard);
    for (const [name] of shard) map[name] = file;
  });
  const index = { metadata: { total_size: total }, weight_map: map };
  writeFileSync(join(folder, 'model.safetensors.index.json'), `${JSON.stringify(index, null, 2)}\n`);
}
