/**
 * The reference of a policy with adapters, on the policy's own base. If training started with new adapters, it is the
 * base with adapters off. If it started from trained adapters, or once the reference was updated, a saved copy of the
 * adapter is swapped in for the forward pass.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Model, withoutAdapters } from '../../models/index.ts';
import { keep, noGrad, openSafetensors, scope, type Tensor, writeSafetensors } from '../../tensor/index.ts';
import { weightsFingerprint } from './fingerprint.ts';
import { type Reference, referenceFile } from './reference.ts';

export class AdapterReference implements Reference {
  readonly #policy: Model;
  /** The reference's adapters; null while the reference is the base alone. */
  #kept: Map<string, Tensor> | null = null;

  constructor(policy: Model) {
    this.#policy = policy;
    if (!isFresh(policy)) this.update();
  }

  use<T>(body: (model: Model) => T): T {
    return this.#swapped(() => body(this.#policy));
  }

  update(): void {
    const kept = this.#kept ?? new Map<string, Tensor>();
    noGrad(() => {
      for (const [name, parameter] of this.#policy.trainable()) {
        const own = kept.get(name);
        if (own === undefined) kept.set(name, keep(parameter.detach().clone()));
        else own.copy_(parameter.detach());
      }
    });
    this.#kept = kept;
  }

  save(folder: string): void {
    if (this.#kept !== null) writeSafetensors(join(folder, referenceFile), this.#kept);
  }
  load(folder: string): void {
    const path = join(folder, referenceFile);
    if (!existsSync(path)) return;
    this.update();
    using saved = openSafetensors(path);
    scope(() =>
      noGrad(() => {
        for (const [name, own] of this.#kept ?? []) own.copy_(saved.tensor(name));
      }),
    );
  }

  fingerprint(): string {
    return this.#swapped(() => weightsFingerprint([...this.#policy.decoder.tensors(), ...(this.#kept ?? [])]));
  }

  dispose(): void {
    for (const own of this.#kept?.values() ?? []) own.dispose();
    this.#kept = null;
  }

  #swapped<T>(body: () => T): T {
    const kept = this.#kept;
    if (kept === null) return withoutAdapters(this.#policy, body);
    return scope(() => {
      const trained = [...this.#policy.trainable()];
      const now = noGrad(() => trained.map(([, parameter]) => parameter.detach().clone()));
      const put = (values: (name: string, i: number) => Tensor) =>
        noGrad(() => {
          for (const [i, [name, parameter]] of trained.entries()) parameter.copy_(values(name, i));
        });
      put((name) => kept.get(name) as Tensor);
      try {
        return body();
      } finally {
        put((_, i) => now[i] as Tensor);
      }
    });
  }
}

/** Whether B = 0 in all adapters, so that they have no effect yet. */
function isFresh(policy: Model): boolean {
  const projections = policy.adapters?.active?.projections ?? [];
  return scope(() =>
    noGrad(() => projections.every(({ parts }) => parts.every(({ b }) => b.detach().abs().max().item() === 0))),
  );
}
