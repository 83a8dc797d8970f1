/**
 * A module is a class whose fields are its parts: a Tensor field is a parameter, a Module field (or an array of them)
 * is a child, and `buffer()` registers tensors that are saved but not trained (they may be fields too). Names are the
 * field names in the order of declaration, as in Hugging Face's weights; a tensor that appears in two places (tied
 * weights) has only the first name.
 *
 *     class Mlp extends Module {
 *       up = new Linear(8, 32);
 *       down = new Linear(32, 1);
 *       forward(x: Tensor) { return this.down.forward(this.up.forward(x).relu()); }
 *     }
 */
import { UserError } from '../errors.ts';
import { type Device, type DType, isFloating, keep, noGrad, scope, Tensor } from '../tensor/index.ts';

/** The base class of everything with parameters: names, counts, moves, saves and loads them. */
export abstract class Module {
  training = true;
  readonly #buffers = new Map<string, Tensor>();

  /** Registers a tensor that is saved with the module but not trained. */
  protected buffer(name: string, tensor: Tensor): Tensor {
    this.#buffers.set(name, keep(tensor));
    return tensor;
  }

  *children(): Iterable<[string, Module]> {
    for (const [name, value] of Object.entries(this)) {
      if (value instanceof Module) yield [name, value];
      if (Array.isArray(value)) {
        for (const [i, item] of value.entries()) if (item instanceof Module) yield [`${name}.${i}`, item];
      }
    }
  }

  *namedModules(prefix = ''): Iterable<[string, Module]> {
    yield [prefix, this];
    for (const [name, child] of this.children()) yield* child.namedModules(join(prefix, name));
  }

  *namedParameters(prefix = '', seen: Set<Tensor> = new Set()): Iterable<[string, Tensor]> {
    const buffers = new Set(this.#buffers.values());
    for (const [name, value] of Object.entries(this)) {
      if (value instanceof Tensor) {
        if (!buffers.has(value) && !seen.has(value)) yield [join(prefix, name), value];
        seen.add(value);
      } else if (value instanceof Module) {
        yield* value.namedParameters(join(prefix, name), seen);
      } else if (Array.isArray(value)) {
        for (const [i, item] of value.entries()) {
          if (item instanceof Module) yield* item.namedParameters(join(prefix, `${name}.${i}`), seen);
        }
      }
    }
  }

  *namedBuffers(prefix = ''): Iterable<[string, Tensor]> {
    for (const [name, value] of this.#buffers) yield [join(prefix, name), value];
    for (const [name, child] of this.children()) yield* child.namedBuffers(join(prefix, name));
  }

  parameters(): Tensor[] {
    return Array.from(this.namedParameters(), ([, tensor]) => tensor);
  }

  /** Parameters and buffers by name, as a checkpoint holds them. */
  state(): Map<string, Tensor> {
    return new Map([...this.namedParameters(), ...this.namedBuffers()]);
  }

  /** Copies values into the module's own tensors. Missing, extra and misshapen names are reported together. */
  loadState(state: ReadonlyMap<string, Tensor>): void {
    const own = this.state();
    const faults: string[] = [];
    for (const [name, tensor] of own) {
      const source = state.get(name);
      if (source === undefined) faults.push(`"${name}" is missing`);
      else if (source.shape.join() !== tensor.shape.join())
        faults.push(`"${name}" is [${source.shape}], expected [${tensor.shape}]`);
    }
    for (const name of state.keys()) if (!own.has(name)) faults.push(`"${name}" is not a part of this module`);
    if (faults.length > 0) throw new UserError(`The weights do not fit the module: ${faults.join('; ')}.`);
    noGrad(() => {
      for (const [name, tensor] of own) tensor.copy_(state.get(name) as Tensor);
    });
  }

  train(mode = true): this {
    for (const [, module] of this.namedModules()) module.training = mode;
    return this;
  }
  eval(): this {
    return this.train(false);
  }
  requiresGrad_(value = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad_(value);
    return this;
  }

  zeroGrad(): void {
    for (const parameter of this.parameters()) parameter.grad = null;
  }

  /** Moves and converts all parameters and buffers; integer buffers keep their dtype. Make optimisers after this, not before. */
  to(target: { dtype?: DType; device?: Device }): this {
    const done = new Map<Tensor, Tensor>(); // so that tied weights are moved once and stay tied
    const move = (tensor: Tensor) => {
      const result = done.get(tensor) ?? moved(tensor, target);
      done.set(tensor, result).set(result, result);
      return result;
    };
    for (const [, module] of this.namedModules()) module.#convert(move);
    for (const [before, after] of done) if (before !== after) before.dispose();
    return this;
  }
  #convert(move: (tensor: Tensor) => Tensor): void {
    for (const [name, value] of Object.entries(this)) {
      if (value instanceof Tensor) (this as Record<string, unknown>)[name] = move(value);
    }
    for (const [name, value] of this.#buffers) this.#buffers.set(name, move(value));
  }

  dispose(): void {
    for (const tensor of this.state().values()) tensor.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Marks a tensor as trainable and keeps it out of every scope; returns it. */
export function parameter(tensor: Tensor): Tensor {
  return keep(tensor).requiresGrad_();
}

function join(prefix: string, name: string): string {
  return prefix === '' ? name : `${prefix}.${name}`;
}

function moved(tensor: Tensor, target: { dtype?: DType; device?: Device }): Tensor {
  const dtype = target.dtype !== undefined && isFloating(tensor.dtype) ? target.dtype : tensor.dtype;
  const device = target.device ?? tensor.device;
  if (dtype === tensor.dtype && device === tensor.device) return tensor;
  const trained = tensor.requiresGrad;
  return scope(() => keep(noGrad(() => tensor.detach().to({ dtype, device }))).requiresGrad_(trained));
}
