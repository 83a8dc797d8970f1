/**
 * The frozen reference policy: a second copy, another checkpoint, or the policy's own base with its adapters off, which
 * takes no extra memory. During training it can be updated to the policy's weights.
 *
 *     const reference = await openReference({ config, policy, device });
 *     reference.use((model) => scoreLogprobs(model, null, rollouts, options));
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import type { Model } from '../../models/index.ts';
import { noGrad, openSafetensors, scope, type Tensor, writeSafetensors } from '../../tensor/index.ts';
import { weightsFingerprint } from './fingerprint.ts';

export interface Reference {
  /** Runs a function on a model with the reference's weights. */
  use<T>(body: (model: Model) => T): T;
  /** Sets the reference to the current policy. */
  update(): void;
  /** Saves an updated reference, so that a resumed run restores it. */
  save(folder: string): void;
  load(folder: string): void;
  /** A hash of its weights, for cache keys. */
  fingerprint(): string;
  dispose(): void;
}

export const referenceFile = 'reference.safetensors';

/** A separate model as the reference. */
export class ModelReference implements Reference {
  readonly #model: Model;
  readonly #policy: Model;
  #moved = false;

  constructor(model: Model, policy: Model) {
    this.#model = model;
    this.#policy = policy;
    model.train(false);
    model.decoder.requiresGrad_(false);
  }

  use<T>(body: (model: Model) => T): T {
    return body(this.#model);
  }

  update(): void {
    copyWeights(new Map(this.#policy.decoder.parameters()), this.#model.decoder.parameters());
    this.#moved = true;
  }

  save(folder: string): void {
    if (this.#moved) writeSafetensors(join(folder, referenceFile), this.#model.decoder.parameters());
  }
  load(folder: string): void {
    if (!existsSync(join(folder, referenceFile))) return;
    using saved = openSafetensors(join(folder, referenceFile));
    copyWeights({ get: (name) => saved.tensor(name) }, this.#model.decoder.parameters());
    this.#moved = true;
  }

  fingerprint(): string {
    return weightsFingerprint(this.#model.decoder.tensors());
  }
  dispose(): void {
    this.#model.dispose();
  }
}

function copyWeights(from: { get(name: string): Tensor | undefined }, to: Iterable<readonly [string, Tensor]>): void {
  scope(() =>
    noGrad(() => {
      for (const [name, weight] of to) {
        const source = from.get(name);
        if (source?.shape.join() !== weight.shape.join()) {
          throw new UserError(
            `The reference cannot move: its "${name}" is not the policy's. A moving reference must be a model of the same shape.`,
          );
        }
        weight.copy_(source);
      }
    }),
  );
}
