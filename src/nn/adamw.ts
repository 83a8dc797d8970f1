/**
 * AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
 *
 *   m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  θ ← θ − lr·λ·θ − lr·m̂/(√v̂ + ε)
 *
 * Parameters in bf16 or f16 have an f32 master copy: an update of 1e-6 relative to a weight is far below bf16's 2⁻⁸ and
 * would vanish otherwise. On CPUs our own kernel updates f32 parameters. Its bits do not depend on an element's
 * position, so parameters sharded over processes get the same bits as whole ones. On CUDA our own kernel updates all
 * parameters in one launch (native/ops/training/adamw.cc). Everything else uses libtorch's fused kernel, or its foreach
 * operators if it has none. (libtorch's fused CPU kernel rounds the last elements of a tensor differently.)
 */
import { checkNames, UserError } from '../errors.ts';
import {
  isFloating,
  keep,
  noGrad,
  openSafetensors,
  scope,
  type Tensor,
  writeSafetensors,
  zerosLike,
} from '../tensor/index.ts';
import { type AdamWRule, type Graded, hasOwnKernel, type Slot, updateGroup } from './adamw-update.ts';

/** AdamW's learning rate and its other settings. */
export interface AdamWOptions {
  lr: number;
  betas?: readonly [number, number];
  eps?: number;
  weightDecay?: number;
  /** Which parameters decay; by default matrices do and vectors (biases, norms) do not. */
  decays?: (name: string, parameter: Tensor) => boolean;
  /** Update in one kernel; by default if there is one. */
  fused?: boolean;
  /**
   * Elements of half-precision gradients that are converted to f32 at a time: f32 copies of all would be as large as
   * the masters.
   */
  convertedAtOnce?: number;
}

const optionNames: Record<keyof AdamWOptions, true> = {
  ...{ lr: true, betas: true, eps: true, weightDecay: true, decays: true, fused: true, convertedAtOnce: true },
};

/**
 * The AdamW optimiser over named parameters: `step` updates them from their gradients, `save` and `load` keep its
 * state.
 */
export class AdamW {
  lr: number;
  readonly #settings: Omit<AdamWRule, 'lr'>;
  readonly #slots: Slot[];
  #steps = 0;
  /** The parameters updated in the last step. */
  #updated: Slot[] = [];

  constructor(parameters: Iterable<readonly [string, Tensor]>, options: AdamWOptions) {
    checkNames('AdamW', options, Object.keys(optionNames));
    const {
      lr,
      betas = [0.9, 0.999],
      eps = 1e-8,
      weightDecay = 0,
      decays = (_, parameter) => parameter.ndim >= 2,
    } = options;
    if (!(lr >= 0) || !(eps > 0) || !(weightDecay >= 0) || betas.some((beta) => !(beta >= 0 && beta < 1))) {
      throw new UserError(
        `AdamW: lr ${lr}, betas ${betas}, eps ${eps}, weight decay ${weightDecay} are not possible together.`,
      );
    }
    this.lr = lr;
    const { fused = true, convertedAtOnce = 1 << 26 } = options;
    this.#settings = { betas, eps, fused, convertedAtOnce };
    const seen = new Set<Tensor>();
    this.#slots = noGrad(() =>
      Array.from(parameters, ([name, parameter]) => {
        if (!isFloating(parameter.dtype))
          throw new UserError(`AdamW: "${name}" is ${parameter.dtype}; only floating-point tensors are trained.`);
        if (seen.has(parameter)) throw new UserError(`AdamW: "${name}" is given twice; it would be updated twice.`);
        seen.add(parameter);
        const master =
          parameter.dtype === 'float32' || parameter.dtype === 'float64'
            ? parameter
            : keep(parameter.detach().to('float32'));
        const decay = decays(name, parameter) ? weightDecay : 0;
        const [average, square] = [keep(zerosLike(master)), keep(zerosLike(master))];
        return { name, parameter, master, average, square, decay, steps: 0 };
      }),
    );
  }

  /** The parameters by name. */
  get named(): [string, Tensor][] {
    return this.#slots.map(({ name, parameter }) => [name, parameter]);
  }
  get parameters(): Tensor[] {
    return this.#slots.map((slot) => slot.parameter);
  }
  get steps(): number {
    return this.#steps;
  }
  /**
   * Whether `step` takes a gradient factor that is still being computed on the device: then the update does not wait
   * for the norm.
   */
  get scalesOnDevice(): boolean {
    return this.#settings.fused && this.#slots.length > 0 && this.#slots.every(({ master }) => hasOwnKernel(master));
  }

  /**
   * Updates every parameter that has a gradient; the others stay as they are. Gradients are multiplied by `factor`, one
   * f32 number on their device. If it is NaN nothing is updated, and the caller calls `takeBackStep` afterwards.
   */
  step(factor: Tensor | null = null): void {
    this.#steps++;
    this.#updated = [];
    const rule = { lr: this.lr, ...this.#settings };
    scope(() =>
      noGrad(() => {
        const groups = new Map<string, Graded[]>();
        for (const slot of this.#slots) {
          const gradient = slot.parameter.grad;
          if (gradient === null) continue;
          slot.steps++;
          this.#updated.push(slot);
          const dtypes = `${slot.master.dtype} ${slot.parameter.dtype} ${gradient.dtype}`;
          const key = `${slot.steps} ${slot.decay} ${dtypes} ${slot.master.device}`;
          const group = groups.get(key) ?? [];
          group.push({ slot, gradient });
          groups.set(key, group);
        }
        for (const group of groups.values()) updateGroup(group, rule, factor);
      }),
    );
  }

  /** Removes the last step from the step counts. */
  takeBackStep(): void {
    this.#steps--;
    for (const slot of this.#updated) slot.steps--;
    this.#updated = [];
  }

  zeroGrad(): void {
    for (const slot of this.#slots) slot.parameter.grad = null;
  }

  /** One parameter's state tensors under the names they have in a file. */
  static #parts(slot: Slot): [string, Tensor][] {
    const moments: [string, Tensor][] = [
      [`${slot.name}.exp_avg`, slot.average],
      [`${slot.name}.exp_avg_sq`, slot.square],
    ];
    return slot.master === slot.parameter ? moments : [...moments, [`${slot.name}.master`, slot.master]];
  }

  /** Each parameter's state, for an optimiser that shards it over several processes. */
  state(): { name: string; exp_avg: Tensor; exp_avg_sq: Tensor; master: Tensor; steps: number }[] {
    return this.#slots.map(({ name, average, square, master, steps }) => ({
      name,
      exp_avg: average,
      exp_avg_sq: square,
      master,
      steps,
    }));
  }

  /** Sets the step counts: the overall one, and each parameter's. */
  setSteps(steps: number, each: (name: string) => number): void {
    this.#steps = steps;
    for (const slot of this.#slots) slot.steps = each(slot.name);
  }

  /**
   * Writes everything that an exact resume needs: moments, f32 masters of half-precision parameters, step counts.
   * Without a path it writes nothing: ranks other than the first pass none.
   */
  save(path: string | undefined): void {
    if (path === undefined) return;
    const parts = this.#slots.flatMap((slot) => AdamW.#parts(slot));
    const each = this.#slots.map((slot) => slot.steps);
    writeSafetensors(path, parts, { steps: String(this.#steps), parameter_steps: JSON.stringify(each) });
  }

  /** Restores a saved state. If it does not fit the parameters it is refused and nothing changes. */
  load(path: string): void {
    using file = openSafetensors(path);
    const steps = Number(file.metadata.steps);
    const each = stepList(file.metadata.parameter_steps);
    if (!isCount(steps) || each === undefined)
      throw new UserError(`${path}: no step count; this is not an optimiser's state.`);
    const parts = this.#slots.flatMap((slot) => AdamW.#parts(slot));
    const faults = parts.flatMap(([name, own]) => {
      if (!file.has(name)) return [`"${name}" is missing`];
      const { shape, dtype } = file.info(name);
      const fits = shape.join() === own.shape.join() && dtype === own.dtype;
      return fits ? [] : [`"${name}" is ${dtype}[${shape}], expected ${own.dtype}[${own.shape}]`];
    });
    const names = new Set(parts.map(([name]) => name));
    for (const name of file.names) if (!names.has(name)) faults.push(`"${name}" is of no parameter here`);
    if (each.length !== this.#slots.length) faults.push(`${each.length} parameters, expected ${this.#slots.length}`);
    if (faults.length > 0) throw new UserError(`${path} does not fit the parameters: ${faults.join('; ')}.`);
    scope(() =>
      noGrad(() => {
        for (const [name, own] of parts) own.copy_(file.tensor(name));
        for (const slot of this.#slots) if (slot.master !== slot.parameter) slot.parameter.copy_(slot.master);
      }),
    );
    for (const [i, slot] of this.#slots.entries()) slot.steps = each[i] as number;
    this.#steps = steps;
  }

  dispose(): void {
    for (const slot of this.#slots) {
      slot.average.dispose();
      slot.square.dispose();
      if (slot.master !== slot.parameter) slot.master.dispose();
    }
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function stepList(text: string | undefined): number[] | undefined {
  try {
    const list: unknown = JSON.parse(text ?? '');
    return Array.isArray(list) && list.every(isCount) ? list : undefined;
  } catch {
    return undefined;
  }
}
