/** Turning recording on and off, and gradients as return values instead of in `.grad`. */
import { attempt, TensorError } from './engine/error.ts';
import { native } from './engine/native.ts';
import { Tensor } from './tensor.ts';

/** Runs `body` without recording operations for backward: for sampling, scoring and updates of weights. */
export function noGrad<T>(body: () => T): T {
  return withGrad(false, body);
}

/** Runs `body` with recording on, also inside `noGrad`. */
export function enableGrad<T>(body: () => T): T {
  return withGrad(true, body);
}

function withGrad<T>(enabled: boolean, body: () => T): T {
  const before = native.gradEnabled();
  native.setGradEnabled(enabled);
  try {
    const result = body();
    if (result instanceof Promise) {
      result.catch(() => {});
      throw new TensorError(
        'noGrad',
        'noGrad()/enableGrad() take a synchronous function: what runs after an await is outside it.',
      );
    }
    return result;
  } finally {
    native.setGradEnabled(before);
  }
}

/** Whether operations are recorded for backward at this moment. */
export function isGradEnabled(): boolean {
  return native.gradEnabled();
}

/** How `gradients` runs: incoming gradients, and whether the graph is kept or is itself recorded. */
export interface GradOptions {
  /** ∂loss/∂output, one per output. A scalar output needs none: it starts from 1. */
  incoming?: readonly Tensor[];
  retainGraph?: boolean;
  createGraph?: boolean;
}

/**
 * ∂outputs/∂inputs as new tensors; `.grad` is not touched. An entry is null if the outputs do not depend on that input.
 */
export function gradients(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: GradOptions = {},
): (Tensor | null)[] {
  const live = (list: readonly Tensor[]) => list.map((tensor) => tensor.live('gradients'));
  const create = options.createGraph ?? false;
  const incoming = options.incoming ? live(options.incoming) : null;
  return attempt(
    'gradients',
    () => native.gradients(live(outputs), live(inputs), incoming, options.retainGraph ?? create, create),
    [...outputs, ...(options.incoming ?? []), 'for', ...inputs],
  ).map((handle) => (handle === null ? null : new Tensor(handle)));
}

/** Backward from several outputs at once, each with its incoming gradient. */
export function backwardAll(outputs: readonly Tensor[], incoming: readonly Tensor[]): void {
  const live = (list: readonly Tensor[]) => list.map((tensor) => tensor.live('backward'));
  attempt('backward', () => native.backward(live(outputs), live(incoming), false), [...outputs, ...incoming]);
}
