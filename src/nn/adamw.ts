/**
 * AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
 *
 *   m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  θ ← θ − lr·λ·θ − lr·m̂/(√v̂ + ε)
 *
 * Parameters in bf16 or f16 have an f32 master copy: an update of 1e-6 relative to a weight is far below bf16's 2⁻⁸ and
 * would vanish otherwise. libtorch's fused kernel is used where it has one, its foreach operators elsewhere.
 */
import { UserError } from '../errors.ts';
import { aten, empty, findOperator, isFloating, keep, noGrad, openSafetensors, scope, type Tensor, tensor, writeSafetensors, zerosLike } from '../tensor/index.ts';

export interface AdamWOptions {
  lr: number;
  betas?: readonly [number, number];
  eps?: number;
  weightDecay?: number;
  /** Which parameters decay; by default matrices do and vectors (biases, norms) do not. */
  decays?: (name: string, parameter: Tensor) => boolean;
}

interface Slot {
  name: string;
  parameter: Tensor;
  /** The parameter itself when it is f32. */
  master: Tensor;
  average: Tensor;
  square: Tensor;
  decay: number;
}

export class AdamW {
  lr: number;
  readonly #betas: readonly [number, number];
  readonly #eps: number;
  readonly #slots: Slot[];
  #steps = 0;

  constructor(parameters: Iterable<readonly [string, Tensor]>, options: AdamWOptions) {
    const { lr, betas = [0.9, 0.999], eps = 1e-8, weightDecay = 0, decays = (_, parameter) => parameter.ndim >= 2 } = options;
    if (!(lr >= 0) || !(eps > 0) || !(weightDecay >= 0) || betas.some((beta) => !(beta >= 0 && beta < 1))) {
      throw new UserError(`AdamW: lr ${lr}, betas ${betas}, eps ${eps}, weight decay ${weightDecay} are not possible together.`);
    }
    this.lr = lr;
    this.#betas = betas;
    this.#eps = eps;
    this.#slots = noGrad(() =>
      Array.from(parameters, ([name, parameter]) => {
        if (!isFloating(parameter.dtype)) throw new UserError(`AdamW: "${name}" is ${parameter.dtype}; only floating-point tensors are trained.`);
        const master = parameter.dtype === 'float32' || parameter.dtype === 'float64' ? parameter : keep(parameter.detach().to('float32'));
        const decay = decays(name, parameter) ? weightDecay : 0;
        return { name, parameter, master, average: keep(zerosLike(master)), square: keep(zerosLike(master)), decay };
      }),
    );
  }

  get parameters(): Tensor[] {
    return this.#slots.map((slot) => slot.parameter);
  }
  get steps(): number {
    return this.#steps;
  }

  /** One update from the gradients that are there; parameters without one are left alone. */
  step(): void {
    this.#steps++;
    scope(() =>
      noGrad(() => {
        const groups = new Map<string, { slot: Slot; gradient: Tensor }[]>();
        for (const slot of this.#slots) {
          const gradient = slot.parameter.grad;
          if (gradient === null) continue;
          const key = `${slot.decay} ${slot.master.dtype} ${slot.master.device}`;
          const group = groups.get(key) ?? [];
          group.push({ slot, gradient });
          groups.set(key, group);
        }
        for (const group of groups.values()) this.#update(group);
      }),
    );
  }

  #update(group: { slot: Slot; gradient: Tensor }[]): void {
    const first = (group[0] as { slot: Slot }).slot;
    const masters = group.map(({ slot }) => slot.master);
    const averages = group.map(({ slot }) => slot.average);
    const squares = group.map(({ slot }) => slot.square);
    const gradients = group.map(({ slot, gradient }) => (gradient.dtype === slot.master.dtype ? gradient : gradient.to(slot.master.dtype)));
    if (fusedRuns(first.master)) {
      const step = tensor(this.#steps, { device: first.master.device });
      const steps = masters.map(() => step);
      aten('_fused_adamw_', masters, gradients, averages, squares, [], steps, this.lr, ...this.#betas, first.decay, this.#eps, false, false);
    } else {
      this.#foreach(masters, gradients, averages, squares, first.decay);
    }
    const half = group.filter(({ slot }) => slot.parameter !== slot.master);
    for (const { slot } of half) slot.parameter.copy_(slot.master);
  }

  #foreach(masters: Tensor[], gradients: Tensor[], averages: Tensor[], squares: Tensor[], decay: number): void {
    const [beta1, beta2] = this.#betas;
    const correction1 = 1 - beta1 ** this.#steps;
    const correction2 = 1 - beta2 ** this.#steps;
    if (decay !== 0) aten('_foreach_mul_.Scalar', masters, 1 - this.lr * decay);
    aten('_foreach_mul_.Scalar', averages, beta1);
    aten('_foreach_add_.List', averages, gradients, 1 - beta1);
    aten('_foreach_mul_.Scalar', squares, beta2);
    aten('_foreach_addcmul_.Scalar', squares, gradients, gradients, 1 - beta2);
    const denominators = aten<Tensor[]>('_foreach_sqrt', squares);
    aten('_foreach_div_.Scalar', denominators, Math.sqrt(correction2));
    aten('_foreach_add_.Scalar', denominators, this.#eps);
    aten('_foreach_addcdiv_.Scalar', masters, averages, denominators, -this.lr / correction1);
  }

  zeroGrad(): void {
    for (const slot of this.#slots) slot.parameter.grad = null;
  }

  /** Everything needed to go on exactly: moments, masters of half-precision parameters, the step count. */
  save(path: string): void {
    const tensors: [string, Tensor][] = [];
    for (const slot of this.#slots) {
      tensors.push([`${slot.name}.exp_avg`, slot.average], [`${slot.name}.exp_avg_sq`, slot.square]);
      if (slot.master !== slot.parameter) tensors.push([`${slot.name}.master`, slot.master]);
    }
    writeSafetensors(path, tensors, { steps: String(this.#steps) });
  }

  load(path: string): void {
    using file = openSafetensors(path);
    const steps = Number(file.metadata.steps);
    if (!Number.isInteger(steps) || steps < 0) throw new UserError(`${path}: no step count; this is not an optimiser's state.`);
    scope(() =>
      noGrad(() => {
        for (const slot of this.#slots) {
          slot.average.copy_(file.tensor(`${slot.name}.exp_avg`));
          slot.square.copy_(file.tensor(`${slot.name}.exp_avg_sq`));
          if (slot.master !== slot.parameter) {
            slot.master.copy_(file.tensor(`${slot.name}.master`));
            slot.parameter.copy_(slot.master);
          }
        }
      }),
    );
    this.#steps = steps;
  }

  dispose(): void {
    for (const slot of this.#slots) {
      slot.average.dispose();
      slot.square.dispose();
      if (slot.master !== slot.parameter) slot.master.dispose();
    }
  }
}

const fusedDevices = new Map<string, boolean>();

/** Whether the fused kernel runs on this device (2.0 has it for CUDA only): tried once on an empty parameter. */
function fusedRuns(like: Tensor): boolean {
  const key = `${like.device} ${like.dtype}`;
  const known = fusedDevices.get(key);
  if (known !== undefined) return known;
  const works = scope(() => {
    if (findOperator('_fused_adamw_') === null) return false;
    const one = () => [empty([1], { dtype: like.dtype, device: like.device }).fill_(1)];
    try {
      aten('_fused_adamw_', one(), one(), one(), one(), [], [tensor(1, { device: like.device })], 0, 0.9, 0.99, 0, 1e-8, false, false);
      return true;
    } catch {
      return false;
    }
  });
  fusedDevices.set(key, works);
  return works;
}
