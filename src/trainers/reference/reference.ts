/**
 * The frozen policy that direct alignment compares with: a second copy, another checkpoint, or the policy's own base with
 * its adapters off, which costs no memory. A moving reference takes over the policy's weights from time to time.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { type MicroBatchLimits, type PromptedResponse, responseLogprobs } from '../../models/decoder/responses.ts';
import type { Model } from '../../models/index.ts';
import { noGrad, openSafetensors, scope, type Tensor, writeSafetensors } from '../../tensor/index.ts';
import { weightsFingerprint } from './fingerprint.ts';

export interface Reference {
  /** Σ lpRef of each response. */
  logprobs(responses: readonly PromptedResponse[]): number[];
  /** Makes the policy as it is now the reference. */
  update(): void;
  /** What a moved reference needs to be the same after a resume. */
  save(folder: string): void;
  load(folder: string): void;
  /** Stands for its weights in the keys of caches. */
  fingerprint(): string;
  dispose(): void;
}

export const referenceFile = 'reference.safetensors';

/** A model of its own, of the policy's kind or another. */
export class ModelReference implements Reference {
  readonly #model: Model;
  readonly #policy: Model;
  readonly #limits: MicroBatchLimits;
  #moved = false;

  constructor(model: Model, policy: Model, limits: MicroBatchLimits) {
    this.#model = model;
    this.#policy = policy;
    this.#limits = limits;
    model.train(false);
    model.decoder.requiresGrad_(false);
  }

  logprobs(responses: readonly PromptedResponse[]): number[] {
    return responseLogprobs(this.#model.decoder, responses, this.#limits);
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
