/**
 * AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
 *
 *   m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  θ ← θ − lr·λ·θ − lr·m̂/(√v̂ + ε)
 *
 * Parameters in bf16 or f16 have an f32 master copy: an update of 1e-6 relative to a weight is far below bf16's 2⁻⁸ and
 * would vanish otherwise. On CPUs f32 is updated by our own kernel, whose bits do not depend on where an element stands: parameters
 * that are dealt over processes get the bits of whole ones. On CUDA our own kernel updates all parameters in one launch
 * (native/ops/training/adamw.cc). Elsewhere libtorch's fused kernel is used where it has one (its own for CPUs rounds the last elements of a
 * tensor in another way), and its foreach operators where it has none.
 */
import { UserError } from '../errors.ts';
import {
  aten,
  empty,
  findOperator,
  hasCudaKernels,
  isFloating,
  keep,
  noGrad,
  openSafetensors,
  scope,
  type Tensor,
  tensor,
  writeSafetensors,
  zerosLike,
} from '../tensor/index.ts';

/** AdamW's learning rate and its other settings. */
export interface AdamWOptions {
  lr: number;
  betas?: readonly [number, number];
  eps?: number;
  weightDecay?: number;
  /** Which parameters decay; by default matrices do and vectors (biases, norms) do not. */
  decays?: (name: string, parameter: Tensor) => boolean;
  /** The update in one kernel; by default wherever there is one. */
  fused?: boolean;
  /** Elements of half-precision gradients that are converted to f32 at a time: the copies of all would be as large as the masters. */
  convertedAtOnce?: number;
}

interface Slot {
  name: string;
  parameter: Tensor;
  /** The parameter itself when it is f32. */
  master: Tensor;
  average: Tensor;
  square: Tensor;
  decay: number;
  /** Updates so far: a parameter whose first gradient comes late starts its bias correction then. */
  steps: number;
}

/**
 * The AdamW optimiser over named parameters: `step` updates them from their gradients, `save` and `load` keep its
 * state.
 */
export class AdamW {
  lr: number;
  readonly #betas: readonly [number, number];
  readonly #eps: number;
  readonly #fused: boolean;
  readonly #convertedAtOnce: number;
  readonly #slots: Slot[];
  #steps = 0;
  /** The parameters that the last step updated. */
  #updated: Slot[] = [];

  constructor(parameters: Iterable<readonly [string, Tensor]>, options: AdamWOptions) {
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
    this.#betas = betas;
    this.#eps = eps;
    this.#fused = options.fused ?? true;
    this.#convertedAtOnce = options.convertedAtOnce ?? 1 << 26;
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
  /** Whether `step` takes a factor for the gradients that is still being computed: then nothing waits for the norm before the update. */
  get scalesOnDevice(): boolean {
    return this.#fused && this.#slots.length > 0 && this.#slots.every(({ master }) => hasOwnKernel(master));
  }

  /**
   * Updates every parameter that has a gradient; the others stay as they are. Gradients are multiplied with `factor`, one f32 number
   * on their device. Where it turns out to be NaN nothing is updated, and the caller says so afterwards (`takeBackStep`).
   */
  step(factor: Tensor | null = null): void {
    this.#steps++;
    this.#updated = [];
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
        for (const group of groups.values()) this.#updateGroup(group, factor);
      }),
    );
  }

  /** Counts the last step as none. */
  takeBackStep(): void {
    this.#steps--;
    for (const slot of this.#updated) slot.steps--;
    this.#updated = [];
  }

  #updateGroup(group: Graded[], factor: Tensor | null): void {
    const first = (group[0] as Graded).slot;
    if (this.#fused && hasOwnKernel(first.master)) {
      const { decay, steps, master, parameter } = first;
      const lists = (['master', 'average', 'square'] as const).map((kind) => group.map(({ slot }) => slot[kind]));
      const [masters, averages, squares] = lists as [Tensor[], Tensor[], Tensor[]];
      const gradients = group.map(({ gradient }) => gradient);
      const copies = master === parameter ? [] : group.map(({ slot }) => slot.parameter);
      const rule = [this.lr, ...this.#betas, decay, this.#eps, steps, factor];
      aten('attune::adamw_masters_', masters, gradients, averages, squares, copies, ...rule);
      return;
    }
    const scale = factor?.item() ?? 1;
    if (Number.isNaN(scale)) return;
    if (scale !== 1)
      aten(
        '_foreach_mul_.Scalar',
        group.map(({ gradient }) => gradient),
        scale,
      );
    for (const part of inParts(group, this.#convertedAtOnce)) scope(() => this.#update(part));
  }

  #update(group: Graded[]): void {
    const first = (group[0] as { slot: Slot }).slot;
    const masters = group.map(({ slot }) => slot.master);
    const averages = group.map(({ slot }) => slot.average);
    const squares = group.map(({ slot }) => slot.square);
    const gradients = group.map(({ slot, gradient }) =>
      gradient.dtype === slot.master.dtype ? gradient : gradient.to(slot.master.dtype),
    );
    if (this.#fused && masters.every(isPlainFloat) && gradients.every(isPlainFloat)) {
      const { decay, steps } = first;
      aten('attune::adamw_', masters, gradients, averages, squares, this.lr, ...this.#betas, decay, this.#eps, steps);
    } else if (this.#fused && fusedRuns(first.master)) {
      const step = tensor(first.steps, { device: first.master.device });
      const steps = masters.map(() => step);
      fusedUpdate(masters, gradients, averages, squares, steps, this.lr, this.#betas, first.decay, this.#eps);
    } else {
      this.#foreach(masters, gradients, averages, squares, first);
    }
    const half = group.filter(({ slot }) => slot.parameter !== slot.master).map(({ slot }) => slot);
    if (half.length > 0)
      copyAll(
        half.map((slot) => slot.parameter),
        half.map((slot) => slot.master),
      );
  }

  #foreach(
    masters: Tensor[],
    gradients: Tensor[],
    averages: Tensor[],
    squares: Tensor[],
    { decay, steps }: Slot,
  ): void {
    const [beta1, beta2] = this.#betas;
    const correction1 = 1 - beta1 ** steps;
    const correction2 = 1 - beta2 ** steps;
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

  /** One parameter's state tensors under the names they have in a file. */
  static #parts(slot: Slot): [string, Tensor][] {
    const moments: [string, Tensor][] = [
      [`${slot.name}.exp_avg`, slot.average],
      [`${slot.name}.exp_avg_sq`, slot.square],
    ];
    return slot.master === slot.parameter ? moments : [...moments, [`${slot.name}.master`, slot.master]];
  }

  /** Each parameter's state, for an optimiser that deals it over several processes. */
  state(): { name: string; exp_avg: Tensor; exp_avg_sq: Tensor; master: Tensor; steps: number }[] {
    return this.#slots.map(({ name, average, square, master, steps }) => ({
      name,
      exp_avg: average,
      exp_avg_sq: square,
      master,
      steps,
    }));
  }

  /** Sets the counts of updates: of all, and of each parameter. */
  setSteps(steps: number, each: (name: string) => number): void {
    this.#steps = steps;
    for (const slot of this.#slots) slot.steps = each(slot.name);
  }

  /**
   * Writes all that an exact resume needs: moments, f32 masters of half-precision parameters, step counts. Without a path it
   * writes nothing, as ranks do that leave it to the first.
   */
  save(path: string | undefined): void {
    if (path === undefined) return;
    const parts = this.#slots.flatMap((slot) => AdamW.#parts(slot));
    const each = this.#slots.map((slot) => slot.steps);
    writeSafetensors(path, parts, { steps: String(this.#steps), parameter_steps: JSON.stringify(each) });
  }

  /** Restores a saved state. One that does not fit the parameters is refused, and nothing changes. */
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

/** A parameter's state, and its gradient. */
interface Graded {
  slot: Slot;
  gradient: Tensor;
}

/** One part where nothing is converted: one call of the kernel for all. */
function inParts(group: Graded[], most: number): Graded[][] {
  if (group.every(({ slot, gradient }) => gradient.dtype === slot.master.dtype)) return [group];
  const parts: Graded[][] = [];
  let elements = Number.POSITIVE_INFINITY;
  for (const each of group.flatMap((whole) => inRows(whole, most))) {
    const { numel } = each.gradient;
    if (elements + numel > most) {
      parts.push([]);
      elements = 0;
    }
    parts.at(-1)?.push(each);
    elements += numel;
  }
  return parts;
}

/** A parameter larger than a part, such as an embedding, in groups of its rows. */
function inRows(whole: Graded, most: number): Graded[] {
  const { slot, gradient } = whole;
  const [rows = 1] = gradient.shape;
  if (gradient.numel <= most || rows === 1 || slot.master === slot.parameter) return [whole];
  const each = Math.max(1, Math.floor(most / (gradient.numel / rows)));
  return Array.from({ length: Math.ceil(rows / each) }, (_, i) => {
    const part = (values: Tensor) => values.narrow(0, i * each, Math.min(each, rows - i * each));
    const { parameter, master, average, square } = slot;
    return {
      slot: {
        ...slot,
        parameter: part(parameter.detach()),
        master: part(master),
        average: part(average),
        square: part(square),
      },
      gradient: part(gradient),
    };
  });
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

/** Copies in one call where libtorch has the operator (2.1 and later). */
function copyAll(targets: Tensor[], sources: Tensor[]): void {
  if (findOperator('_foreach_copy_') !== null) aten('_foreach_copy_', targets, sources);
  else for (const [i, target] of targets.entries()) target.copy_(sources[i] as Tensor);
}

function fusedUpdate(
  masters: Tensor[],
  gradients: Tensor[],
  averages: Tensor[],
  squares: Tensor[],
  steps: Tensor[],
  lr: number,
  betas: readonly [number, number],
  decay: number,
  eps: number,
): void {
  aten('_fused_adamw_', masters, gradients, averages, squares, [], steps, lr, ...betas, decay, eps, false, false);
}

/** Whether `attune::adamw_masters_` has a kernel for masters like this one. */
const hasOwnKernel = ({ dtype, device }: Tensor) =>
  dtype === 'float32' && device.startsWith('cuda') && hasCudaKernels();

/** What our own kernel of the CPU takes. */
const isPlainFloat = ({ dtype, device }: Tensor) => dtype === 'float32' && device === 'cpu';

const fusedDevices = new Map<string, boolean>();

/** Whether the fused kernel runs on this device (2.0 has it for CUDA only): tried once on a parameter of one element. */
function fusedRuns(like: Tensor): boolean {
  const key = `${like.device} ${like.dtype}`;
  const known = fusedDevices.get(key);
  if (known !== undefined) return known;
  const works = scope(() => {
    if (findOperator('_fused_adamw_') === null) return false;
    const one = () => [empty([1], { dtype: like.dtype, device: like.device }).fill_(1)];
    try {
      fusedUpdate(one(), one(), one(), one(), [tensor(1, { device: like.device })], 0, [0.9, 0.99], 0, 1e-8);
      return true;
    } catch {
      return false;
    }
  });
  fusedDevices.set(key, works);
  return works;
}
