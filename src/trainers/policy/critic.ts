/**
 * The critic: a linear value head on the policy's own hidden states, or on a second backbone that starts as a copy of
 * the policy. The state of token t is the text before it, so V_t is read at the position that predicts the token.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { rowsBefore } from '../../models/decoder/batch.ts';
import type { PackedResponses } from '../../models/decoder/responses.ts';
import { type Model, ScoreHead, saveModel } from '../../models/index.ts';
import {
  noGrad,
  openSafetensors,
  scope,
  seed as seedEngine,
  type Tensor,
  writeSafetensors,
} from '../../tensor/index.ts';
import { restoreForTraining } from '../setup.ts';

const headFile = 'value_head.safetensors';
const backboneFolder = 'value_backbone';
const weightName = 'value.weight';

export class Critic {
  readonly head: ScoreHead;
  /** null: the head reads the policy's hidden states. */
  readonly backbone: Model | null;

  /** Initialises the head from the seed. Either backbone has the policy's hidden size. */
  constructor(policy: Model, backbone: Model | null, seed: number) {
    seedEngine(seed);
    this.head = ScoreHead.init('value', 1, policy.decoder.spec.hiddenSize, policy.device);
    this.backbone = backbone;
    backbone?.decoder.requiresGrad_();
    backbone?.train(false);
  }

  /** V_t of each response token, with gradient if enabled. `hidden` are the policy's states of the same batch. */
  values(packed: PackedResponses, hidden: Tensor): Tensor {
    const states = this.backbone === null ? hidden : this.backbone.decoder.forward(packed.batch);
    return this.head.forward(rowsBefore(states, packed.batch, packed.tokens)).squeeze(-1);
  }

  *parameters(): Iterable<[string, Tensor]> {
    yield [weightName, this.head.weight];
    if (this.backbone === null) return;
    for (const [name, parameter] of this.backbone.decoder.parameters()) yield [`value_backbone.${name}`, parameter];
  }

  save(folder: string): void {
    writeSafetensors(join(folder, headFile), new Map([[weightName, this.head.weight]]));
    if (this.backbone !== null) saveModel(this.backbone, join(folder, backboneFolder));
  }

  restore(folder: string): void {
    const file = join(folder, headFile);
    if (!existsSync(file))
      throw new UserError(`${folder}: there is no ${headFile}, which this algorithm goes on from.`);
    scope(() =>
      noGrad(() => {
        using saved = openSafetensors(file);
        this.head.weight.copy_(saved.tensor(weightName));
      }),
    );
    if (this.backbone !== null) restoreForTraining(this.backbone, join(folder, backboneFolder));
  }

  dispose(): void {
    this.head.dispose();
    this.backbone?.dispose();
  }
}
