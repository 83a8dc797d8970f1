/** Score heads in checkpoints: which one a checkpoint has, and transformers' names for its tensors. */
import { type Checkpoint, type Device, scope, type Tensor, zeros } from '../../tensor/index.ts';
import { ScoreHead } from '../decoder/head.ts';
import type { Model, ModelNotes } from '../model.ts';

/** The module name of a checkpoint's score head; undefined if it has none. */
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

/** A head's tensors under the names of transformers' classifier for that family. Token classifiers require a bias. */
export function* headTensors(model: Model, head: ScoreHead): Iterable<[string, Tensor]> {
  const ofTokens = head.kind !== 'reward';
  const module = ofTokens ? (model.family.tokenHead ?? 'score') : 'score';
  yield [`${module}.weight`, head.weight];
  if (head.bias !== null) yield [`${module}.bias`, head.bias];
  else if (ofTokens) yield [`${module}.bias`, zeros([head.outputs])];
}
