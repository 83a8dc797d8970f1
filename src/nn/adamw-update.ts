/**
 * The AdamW update for parameters of one kind: by our own kernels, by libtorch's fused one, or by its foreach operators
 * (adamw.ts chooses).
 */
import { aten, empty, findOperator, hasCudaKernels, scope, type Tensor, tensor } from '../tensor/index.ts';

/** A parameter's state. */
export interface Slot {
  name: string;
  parameter: Tensor;
  /** The parameter itself when it is f32. */
  master: Tensor;
  average: Tensor;
  square: Tensor;
  decay: number;
  /** Updates so far: a parameter whose first gradient comes late starts its bias correction at that point. */
  steps: number;
}

/** A parameter's state, and its gradient. */
export interface Graded {
  slot: Slot;
  gradient: Tensor;
}

/** How parameters are updated. */
export interface AdamWRule {
  lr: number;
  betas: readonly [number, number];
  eps: number;
  /** Uses one kernel if there is one. */
  fused: boolean;
  /** Elements of half-precision gradients that are converted to f32 at a time. */
  convertedAtOnce: number;
}

/** Updates parameters that share dtypes, decay and step count. Call it inside a scope and without gradients. */
export function updateGroup(group: Graded[], rule: AdamWRule, factor: Tensor | null): void {
  const first = (group[0] as Graded).slot;
  if (rule.fused && hasOwnKernel(first.master)) {
    const { decay, steps, master, parameter } = first;
    const lists = (['master', 'average', 'square'] as const).map((kind) => group.map(({ slot }) => slot[kind]));
    const [masters, averages, squares] = lists as [Tensor[], Tensor[], Tensor[]];
    const gradients = group.map(({ gradient }) => gradient);
    const copies = master === parameter ? [] : group.map(({ slot }) => slot.parameter);
    const numbers = [rule.lr, ...rule.betas, decay, rule.eps, steps, factor];
    aten('attune::adamw_masters_', masters, gradients, averages, squares, copies, ...numbers);
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
  for (const part of inParts(group, rule.convertedAtOnce)) scope(() => update(part, rule));
}

function update(group: Graded[], rule: AdamWRule): void {
  const { lr, betas, eps, fused } = rule;
  const first = (group[0] as { slot: Slot }).slot;
  const masters = group.map(({ slot }) => slot.master);
  const averages = group.map(({ slot }) => slot.average);
  const squares = group.map(({ slot }) => slot.square);
  const gradients = group.map(({ slot, gradient }) =>
    gradient.dtype === slot.master.dtype ? gradient : gradient.to(slot.master.dtype),
  );
  if (fused && masters.every(isPlainFloat) && gradients.every(isPlainFloat)) {
    const { decay, steps } = first;
    aten('attune::adamw_', masters, gradients, averages, squares, lr, ...betas, decay, eps, steps);
  } else if (fused && fusedRuns(first.master)) {
    const step = tensor(first.steps, { device: first.master.device });
    const steps = masters.map(() => step);
    fusedUpdate(masters, gradients, averages, squares, steps, lr, betas, first.decay, eps);
  } else {
    updateByOperators(masters, gradients, averages, squares, first, rule);
  }
  const half = group.filter(({ slot }) => slot.parameter !== slot.master).map(({ slot }) => slot);
  if (half.length > 0)
    copyAll(
      half.map((slot) => slot.parameter),
      half.map((slot) => slot.master),
    );
}

function updateByOperators(
  masters: Tensor[],
  gradients: Tensor[],
  averages: Tensor[],
  squares: Tensor[],
  { decay, steps }: Slot,
  { lr, betas: [beta1, beta2], eps }: AdamWRule,
): void {
  const correction1 = 1 - beta1 ** steps;
  const correction2 = 1 - beta2 ** steps;
  if (decay !== 0) aten('_foreach_mul_.Scalar', masters, 1 - lr * decay);
  aten('_foreach_mul_.Scalar', averages, beta1);
  aten('_foreach_add_.List', averages, gradients, 1 - beta1);
  aten('_foreach_mul_.Scalar', squares, beta2);
  aten('_foreach_addcmul_.Scalar', squares, gradients, gradients, 1 - beta2);
  const denominators = aten<Tensor[]>('_foreach_sqrt', squares);
  aten('_foreach_div_.Scalar', denominators, Math.sqrt(correction2));
  aten('_foreach_add_.Scalar', denominators, eps);
  aten('_foreach_addcdiv_.Scalar', masters, averages, denominators, -lr / correction1);
}

/** Parts of the group. If nothing is converted there is only one, and one kernel call updates them all. */
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

/** Splits a parameter larger than a part, such as an embedding, into groups of its rows. */
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

/** Copies in one call if libtorch has the operator (2.1 and later). */
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
export const hasOwnKernel = ({ dtype, device }: Tensor) =>
  dtype === 'float32' && device.startsWith('cuda') && hasCudaKernels();

/** What our own CPU kernel takes. */
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
