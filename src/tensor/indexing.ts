/** Indexing, the method `at` of Tensor: `x.at(0)`, `x.at('...', [0, -1])`, `x.at(rows, columns)`. */
import { TensorError } from './engine/error.ts';
import './methods.ts';
import { aten } from './operator.ts';
import { Tensor } from './tensor.ts';

/**
 * One entry of `Tensor.at` per dimension. A number picks one element, `[start, end, step]` is a slice (each part may be left
 * out), ':' takes all, '...' stands for as many ':' as are needed, null adds a dimension, a tensor of integers or booleans
 * gathers.
 */
export type Index = number | readonly [start?: number, end?: number, step?: number] | ':' | '...' | null | Tensor;

function index(self: Tensor, indices: readonly Index[]): Tensor {
  const taken = indices.filter((entry) => entry !== null && entry !== '...').length;
  if (indices.length - indices.filter((entry) => entry !== '...').length > 1)
    throw new TensorError('at', "at(): '...' can stand for the rest only once");
  if (taken > self.ndim) throw new TensorError('at', `at(): ${taken} indices for ${self}`);
  let result = self;
  let dim = 0;
  const gathers: (Tensor | null)[] = [];
  for (const entry of indices) {
    if (entry === null) {
      result = result.unsqueeze(dim++);
    } else if (entry === '...') {
      dim += self.ndim - taken;
    } else if (entry === ':') {
      dim++;
    } else if (typeof entry === 'number') {
      result = result.select(dim, entry);
    } else if (entry instanceof Tensor) {
      gathers[dim++] = entry;
    } else {
      result = result.slice(dim++, entry[0], entry[1], entry[2] ?? 1);
    }
  }
  if (gathers.length > 0) {
    result = aten(
      'index.Tensor',
      result,
      Array.from(gathers, (entry) => entry ?? null),
    );
  }
  return result === self ? aten('alias', self) : result;
}

const indexing = {
  /**
   * `x.at(0)`, `x.at([1, 3])` (a slice), `x.at('...', -1)`, `x.at(null)`, `x.at(indexTensor)`; one entry per dimension.
   */
  at(this: Tensor, ...indices: Index[]): Tensor {
    return index(this, indices);
  },
};

type Indexing = typeof indexing;
declare module './tensor.ts' {
  interface Tensor extends Indexing {}
}
Object.assign(Tensor.prototype, indexing);
