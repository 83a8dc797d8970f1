/** Heads in checkpoints: which one a checkpoint has, and the names that transformers gives its tensors. */
import { type Checkpoint, type Device, scope, type Tensor, zeros } from '../../tensor/index.ts';
import { ScoreHead } from '../decoder/head.ts';
import type { Model, ModelNotes } from '../model.ts';

/** The module of a score head in a checkpoint, where it has one. */
export function storedHead(checkpoint: Checkpoint): string | undefined {
  return ['score', 'classifier'].find((module) => checkpoint.has(`${module}.weight`));
}

export function readHead(checkpoint: Checkpoint, notes: ModelNotes | undefined, device: Device): ScoreHead | null {
  const module = storedHead(checkpoint);
  if (module === undefined) return null;
  const read = (name: string) => scope(() => checkpoint.tensor(name).to({ dtype: 'float32', device, copy: true }));
  const weight = read(`${module}.weight`);
  const bias = checkpoint.has(`${module}.bias`) ? read(`${module}.bias`) : null;
  return new ScoreHead(notes?.head ?? (weight.size(0) === 1 ? 'reward' : 'classes'), weight, bias);
}

/** A head's tensors under the names that transformers' classifier of that family gives them; token classifiers want a bias. */
export function* headTensors(model: Model, head: ScoreHead): Iterable<[string, Tensor]> {
  const ofTokens = head.kind !== 'reward';
  const module = ofTokens ? (model.family.tokenHead ?? 'score') : 'score';
  yield [`${module}.weight`, head.weight];
  if (head.bias !== null) yield [`${module}.bias`, head.bias];
  else if (ofTokens) yield [`${module}.bias`, zeros([head.outputs])];
}
