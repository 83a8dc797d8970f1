/**
 * LoRA on one projection. The A matrices of its parts form one matrix, and their B matrices one block-diagonal matrix, so that a
 * fused projection costs two thin products, however many parts it has:
 *
 *     y = x·Wᵀ + (x·Aᵀ)·Bᵀ        A [Σr, in], B [out, Σr] with each part's scale inside
 *
 * and with DoRA, for rows with a magnitude m:  y = b + m/‖W + BA‖ · (x·Wᵀ + (x·Aᵀ)·Bᵀ), the norm taken as a constant.
 */
import {
  aten,
  cat,
  type DType,
  dropout,
  isGradEnabled,
  keep,
  linear,
  noGrad,
  ones,
  scope,
  type Tensor,
  zeros,
} from '../../tensor/index.ts';
import type { Projection, ProjectionAdapter } from '../decoder/projection.ts';

/** The adapter's tensors for one part. */
export interface LoraPart {
  module: string;
  part: number;
  scale: number;
  /** [r, in] */
  a: Tensor;
  /** [out, r] */
  b: Tensor;
  /** DoRA's length of each row, [out]. */
  magnitude: Tensor | null;
  /** A trained copy of the part's bias (`lora_only`). */
  bias: Tensor | null;
}

/** What undoing a merge needs. */
interface Merged {
  norm: Tensor | null;
  bias: Tensor | null;
}

export class ProjectionLora implements ProjectionAdapter {
  readonly projection: Projection;
  readonly parts: readonly LoraPart[];
  readonly #dropout: number;
  readonly #training: () => boolean;
  #merged: Merged[] | null = null;

  constructor(projection: Projection, parts: readonly LoraPart[], rate: number, training: () => boolean) {
    this.projection = projection;
    this.parts = parts;
    this.#dropout = rate;
    this.#training = training;
  }

  get random(): boolean {
    return this.#dropout > 0 && this.#training();
  }

  isTrained(): boolean {
    return this.parts.some((part) => part.a.requiresGrad || part.b.requiresGrad);
  }

  apply(input: Tensor, output: Tensor): Tensor {
    const random = this.random;
    const x = random ? dropout(input, this.#dropout, true) : input;
    const low = linear(x, this.#down(x.dtype));
    const up = this.#up(x.dtype);
    let result: Tensor;
    if (this.parts.some((part) => part.magnitude !== null)) {
      // As in PEFT: with dropout, DoRA's rescaling of the base uses the dropped-out input too.
      const base = random ? this.projection.product(x) : withoutBias(output, this.projection.bias);
      const gain = this.#gain(x.dtype);
      result = output.add(base.mul(gain.sub(1))).add(linear(low, up).mul(gain));
    } else {
      result = added(output, low, up);
    }
    const change = this.#biasChange(x.dtype);
    return change === null ? result : result.add(change);
  }

  /** For training on GPUs, where the many small operators of `apply` take longer to launch than to run. */
  applyAtOnce(input: Tensor): Tensor | null {
    const { weight, bias } = this.projection;
    if (weight === null || weight.device === 'cpu' || !isGradEnabled() || this.random) return null;
    if (this.parts.some((part) => part.magnitude !== null || part.bias !== null)) return null;
    const pairs = this.parts.flatMap(({ a, b }) => [a, b]);
    const starts = this.parts.map(({ part }) => this.projection.parts[part]?.start ?? 0);
    const scales = this.parts.map(({ scale }) => scale);
    return aten('attune::lora_linear', input, weight, bias, pairs, scales, starts);
  }

  #down(dtype: DType): Tensor {
    return joined(this.parts.map((part) => part.a.to(dtype)));
  }

  #up(dtype: DType): Tensor {
    const blocks = this.#perPart(
      (part) => part.b.mul(part.scale).to(dtype),
      (outputs) => zeros([outputs, 0], { dtype, device: this.projection.device }),
    );
    return blocks.length === 1 ? (blocks[0] as Tensor) : aten('block_diag', blocks);
  }

  /** m/‖W + BA‖ for each row; 1 where a part has no adapter. */
  #gain(dtype: DType): Tensor {
    const { device } = this.projection;
    const gains = this.#perPart(
      (part) => (part.magnitude as Tensor).div(noGrad(() => scope(() => rowNorm(this.#changed(part))))).to(dtype),
      (outputs) => ones([outputs], { dtype, device }),
    );
    return joined(gains);
  }

  #biasChange(dtype: DType): Tensor | null {
    if (this.parts.every((part) => part.bias === null)) return null;
    const { device } = this.projection;
    return joined(
      this.#perPart(
        (part) => (part.bias as Tensor).sub(this.projection.biasOf(part.part) as Tensor).to(dtype),
        (outputs) => zeros([outputs], { dtype, device }),
      ),
    );
  }

  #perPart(adapted: (part: LoraPart) => Tensor, plain: (outputs: number) => Tensor): Tensor[] {
    return this.projection.parts.map(({ outputs }, i) => {
      const part = this.parts.find((candidate) => candidate.part === i);
      return part === undefined ? plain(outputs) : adapted(part);
    });
  }

  /** W + s·BA of one part, in the adapter's precision. */
  #changed(part: LoraPart): Tensor {
    return this.projection.weightOf(part.part).to('float32').add(change(part));
  }

  changedWeight(): Tensor | null {
    if (this.projection.quantised !== null || this.parts.some((part) => part.bias !== null)) return null;
    const { parts } = this.projection;
    return joined(
      parts.map((_, i) => {
        const part = this.parts.find((candidate) => candidate.part === i);
        return part === undefined ? this.projection.weightOf(i).to('float32') : this.#scaled(part);
      }),
    );
  }

  /** The merged weight: W + s·BA, with DoRA's row lengths if it has them. */
  #scaled(part: LoraPart): Tensor {
    const changed = this.#changed(part);
    if (part.magnitude === null) return changed;
    return changed.mul(part.magnitude.div(rowNorm(changed)).unsqueeze(1));
  }

  /** DoRA starts from the base: the magnitudes are the lengths of the base's rows. */
  startMagnitudes(): void {
    noGrad(() =>
      scope(() => {
        for (const part of this.parts) part.magnitude?.copy_(rowNorm(this.#changed(part)));
      }),
    );
  }

  /** Adds the change to the base's weights. */
  merge(): void {
    if (this.#merged !== null) return;
    this.#merged = noGrad(() => scope(() => this.parts.map((part) => this.#mergePart(part))));
    for (const { norm, bias } of this.#merged) for (const tensor of [norm, bias]) if (tensor !== null) keep(tensor);
  }

  #mergePart(part: LoraPart): Merged {
    const weight = this.projection.weightOf(part.part);
    const changed = this.#changed(part);
    const norm = part.magnitude === null ? null : rowNorm(changed);
    weight.copy_(norm === null ? changed : changed.mul((part.magnitude as Tensor).div(norm).unsqueeze(1)));
    const bias = part.bias === null ? null : this.projection.biasOf(part.part);
    const before = bias === null ? null : bias.clone();
    if (part.bias !== null) bias?.copy_(part.bias);
    return { norm, bias: before };
  }

  /** Undoes `merge`: the weights are the base's to within rounding. */
  unmerge(): void {
    const merged = this.#merged;
    if (merged === null) return;
    noGrad(() =>
      scope(() => {
        for (const [i, part] of this.parts.entries()) this.#unmergePart(part, merged[i] as Merged);
      }),
    );
    this.forgetMerge();
  }

  #unmergePart(part: LoraPart, { norm, bias }: Merged): void {
    const weight = this.projection.weightOf(part.part);
    const direction =
      norm === null ? weight.to('float32') : weight.to('float32').mul(norm.div(part.magnitude as Tensor).unsqueeze(1));
    weight.copy_(direction.sub(change(part)));
    if (bias !== null) this.projection.biasOf(part.part)?.copy_(bias);
  }

  /** Makes a merge permanent: frees what undoing it would need. */
  forgetMerge(): void {
    for (const { norm, bias } of this.#merged ?? []) {
      norm?.dispose();
      bias?.dispose();
    }
    this.#merged = null;
  }

  dispose(): void {
    this.forgetMerge();
    for (const { a, b, magnitude, bias } of this.parts) {
      a.dispose();
      b.dispose();
      magnitude?.dispose();
      bias?.dispose();
    }
  }
}

/**
 * output + low·upᵀ, in place if no gradient is wanted. In f32 on the CPU it uses our own product of few rows:
 * libtorch's addmm sums a row in an order that depends on the number of rows, so a response's log-probs would depend on
 * its neighbours in the batch.
 */
function added(output: Tensor, low: Tensor, up: Tensor): Tensor {
  const isOwn = output.device === 'cpu' && output.dtype === 'float32';
  if (!isOwn) return aten(isGradEnabled() ? 'addmm' : 'addmm_', output, low, up.t());
  const change = linear(low, up);
  return isGradEnabled() ? output.add(change) : output.add_(change);
}

/** s·BA, [out, in]. */
const change = (part: LoraPart) => part.b.to('float32').matmul(part.a.to('float32')).mul(part.scale);

const rowNorm = (matrix: Tensor): Tensor => aten('linalg_vector_norm', matrix, 2, [1]);

const withoutBias = (output: Tensor, bias: Tensor | null) => (bias === null ? output : output.sub(bias));

const joined = (tensors: Tensor[]) => (tensors.length === 1 ? (tensors[0] as Tensor) : cat(tensors));
