/**
 * AdamW whose state is sharded over the ranks (ZeRO-2; Rajbhandari et al. 2020). Each rank gets its own part of every
 * bucket's gradient (exchange.ts) and updates its own part in f32, and the new weights are all-gathered; sharded
 * weights (sharded-weights.ts) are not gathered until they are used. A rank holds 1/N of the moments and of the f32
 * masters. Checkpoints are those of a single rank, byte for byte.
 */
import { UserError } from '../../errors.ts';
import { AdamW, type AdamWOptions } from '../../nn/index.ts';
import { cat, dtypeBytes, keep, noGrad, openSafetensors, scope, type Tensor, zeros } from '../../tensor/index.ts';
import { SafetensorsStream } from '../../tensor/safetensors/stream.ts';
import { type Bucket, bucketsOf, bytesOf, emptyLike, type Slice } from '../buckets.ts';
import type { Group } from '../group.ts';
import { clipTo, squaresOf } from '../norm.ts';
import type { World } from '../world.ts';
import { ShardedWeights } from './sharded-weights.ts';

/** The part of a parameter that lies in this rank's part of its bucket. */
interface Piece {
  slice: Slice;
  /** First element, in the parameter and in this rank's part, and the number of elements. */
  from: number;
  at: number;
  size: number;
  /** f32: a view of the weights if those are f32, else a master copy. */
  values: Tensor;
}

interface Shard {
  bucket: Bucket;
  /** Elements of one rank's part. */
  length: number;
  pieces: readonly Piece[];
  group: Group;
}

const moments = ['exp_avg', 'exp_avg_sq'] as const;

export class ShardedAdamW {
  readonly #inner: AdamW;
  readonly #shards: readonly Shard[];
  readonly #named: [string, Tensor][];
  readonly #world: World;
  /** The weights, if they are sharded over the ranks too. */
  readonly weights: ShardedWeights | null;

  /** `base`: the model's weights, trained or not, that are to be sharded over the ranks with their optimiser. */
  constructor(
    parameters: Iterable<readonly [string, Tensor]>,
    options: AdamWOptions,
    world: World,
    base: ReadonlyMap<string, Tensor> | null = null,
  ) {
    this.#named = Array.from(parameters, ([name, parameter]) => [name, parameter]);
    this.#world = world;
    const buckets = bucketsOf(this.#named, world.size);
    this.weights = base === null ? null : new ShardedWeights(dealtBuckets(base, buckets, world), world);
    this.#shards = buckets.map((bucket) => shardOf(bucket, world, this.weights));
    const matrices = new Set(this.#named.flatMap(([name, { ndim }]) => (ndim >= 2 ? [name] : [])));
    const pieces = this.#pieces.map(({ slice, values }): [string, Tensor] => [slice.name, values]);
    this.#inner = new AdamW(pieces, { ...options, decays: (name) => matrices.has(name) });
  }

  get #pieces(): Piece[] {
    return this.#shards.flatMap(({ pieces }) => pieces);
  }
  get buckets(): Bucket[] {
    return this.#shards.map(({ bucket }) => bucket);
  }
  get named(): [string, Tensor][] {
    return this.#named;
  }
  get parameters(): Tensor[] {
    return this.#named.map(([, parameter]) => parameter);
  }
  get steps(): number {
    return this.#inner.steps;
  }
  get lr(): number {
    return this.#inner.lr;
  }
  set lr(value: number) {
    this.#inner.lr = value;
  }

  /** Takes this rank's parts of gradients that are already summed, one per bucket. */
  takeGradients(parts: readonly Tensor[], present: ReadonlySet<string>): void {
    for (const [i, { pieces }] of this.#shards.entries()) setPieces(pieces, parts[i] as Tensor, present);
  }

  /** Scales the gradient to at most `maxNorm` (0 = never) and returns the norm it had. */
  async clip(maxNorm: number): Promise<number> {
    const own = scope(() => noGrad(() => squaresOf(this.#pieces.map(({ values }) => values))));
    const norm = Math.sqrt((await this.#world.gather(own)).reduce((sum, squares) => sum + squares, 0));
    return clipTo(
      this.#pieces.map(({ values }) => values),
      norm,
      maxNorm,
    );
  }

  async step(): Promise<void> {
    this.#inner.step();
    for (const shard of this.#shards) await this.#spread(shard);
  }

  /** Gives every rank the new weights of a bucket; if they are sharded, only its own part. */
  async #spread({ bucket, length, pieces, group }: Shard): Promise<void> {
    const { dtype } = bucket;
    const part = this.weights?.ownPart(bucket);
    if (part !== undefined) {
      // Values in f32 are views of the part.
      if (dtype !== 'float32') scope(() => noGrad(() => part.copy_(joined(pieces, length, bucket))));
      return;
    }
    const own = scope(() => keep(joined(pieces, length, bucket).to(dtype)));
    const whole = emptyLike(own, bucket.length);
    const [wholeBytes, ownBytes] = [bytesOf(whole), bytesOf(own)];
    await group.allGather(wholeBytes, ownBytes);
    scope(() =>
      noGrad(() => {
        for (const { parameter, start, size } of bucket.slices)
          parameter.copy_(whole.narrow(0, start, size).reshape(...parameter.shape));
      }),
    );
    for (const tensor of [own, whole, ownBytes, wholeBytes]) tensor.dispose();
  }

  zeroGrad(): void {
    for (const parameter of this.parameters) parameter.grad = null;
    this.#inner.zeroGrad();
  }

  /**
   * Writes the state of all ranks as a single rank would: every rank calls it, and the one with a path writes. Buckets
   * are gathered one by one, so that no rank holds more than one of them whole.
   */
  async save(path: string | undefined): Promise<void> {
    const own = Object.fromEntries(this.#inner.state().map(({ name, steps }) => [name, steps]));
    const steps = Object.assign({}, ...(await this.#world.gather(own))) as Record<string, number>;
    const half = (parameter: Tensor) => dtypeBytes[parameter.dtype] < 4;
    const parts = this.#named.flatMap(([name, parameter]) => {
      const kinds = half(parameter) ? [...moments, 'master'] : moments;
      return kinds.map((kind) => ({ name: `${name}.${kind}`, dtype: 'float32' as const, shape: parameter.shape }));
    });
    const each = this.#named.map(([name]) => steps[name] ?? 0);
    const metadata = { steps: String(this.#inner.steps), parameter_steps: JSON.stringify(each) };
    using file = path === undefined ? undefined : new SafetensorsStream(path, parts, metadata);
    const state = new Map(this.#inner.state().map((slot) => [slot.name, slot]));
    for (const { bucket, length, pieces, group } of this.#shards) {
      const masters = half((bucket.slices[0] as Slice).parameter);
      for (const kind of masters ? ([...moments, 'master'] as const) : moments) {
        const values = (name: string) => (state.get(name) as ReturnType<AdamW['state']>[number])[kind];
        const sent = scope(() =>
          keep(
            joined(
              pieces.map((piece) => ({ ...piece, values: values(piece.slice.name) })),
              length,
              bucket,
            ),
          ),
        );
        const whole = emptyLike(sent, bucket.length);
        await group.allGather(whole, sent);
        for (const { name, start, size } of bucket.slices)
          if (file !== undefined) scope(() => file.write(`${name}.${kind}`, whole.narrow(0, start, size)));
        sent.dispose();
        whole.dispose();
      }
    }
    file?.finish();
  }

  /** Takes this rank's part of a state written by any number of ranks. */
  load(path: string): void {
    using file = openSafetensors(path);
    const each = JSON.parse(file.metadata.parameter_steps ?? '[]') as number[];
    if (each.length !== this.#named.length || file.metadata.steps === undefined)
      throw new UserError(`${path} does not fit the parameters: ${each.length}, expected ${this.#named.length}.`);
    const steps = new Map(this.#named.map(([name], i) => [name, each[i] as number]));
    const state = new Map(this.#inner.state().map((slot) => [slot.name, slot]));
    scope(() =>
      noGrad(() => {
        for (const { slice, from, size, values } of this.#pieces) {
          const slot = state.get(slice.name) as ReturnType<AdamW['state']>[number];
          const part = (kind: string) => {
            const name = `${slice.name}.${kind}`;
            if (file.info(name).shape.join() !== slice.parameter.shape.join())
              throw new UserError(`${path} does not fit the parameters: "${name}" is [${file.info(name).shape}].`);
            return file.tensor(name).reshape(-1).narrow(0, from, size);
          };
          for (const kind of moments) slot[kind].copy_(part(kind));
          if (dtypeBytes[slice.parameter.dtype] < 4) values.copy_(part('master'));
        }
      }),
    );
    this.#inner.setSteps(Number(file.metadata.steps), (name) => steps.get(name) ?? 0);
  }

  dispose(): void {
    this.#inner.dispose();
    for (const { values } of this.#pieces) values.dispose();
    this.weights?.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The trained buckets that are the model's own weights, and buckets of its other weights. */
function dealtBuckets(base: ReadonlyMap<string, Tensor>, trained: readonly Bucket[], { size }: World): Bucket[] {
  const isBase = ({ slices }: Bucket) => slices.every(({ name, parameter }) => base.get(name) === parameter);
  const taken = new Set(trained.flatMap(({ slices }) => slices.map(({ parameter }) => parameter)));
  const others = [...base].filter(([, parameter]) => !taken.has(parameter));
  return [...trained.filter(isBase), ...bucketsOf(others, size)];
}

function shardOf(bucket: Bucket, world: World, weights: ShardedWeights | null): Shard {
  const group = world.groupFor(bucket.device);
  if (group === null) throw new Error('a world of one has nothing to deal');
  const length = bucket.length / world.size;
  const [begin, end] = [world.rank * length, (world.rank + 1) * length];
  const pieces = bucket.slices.flatMap((slice): Piece[] => {
    const first = Math.max(begin, slice.start);
    const size = Math.min(end, slice.start + slice.size) - first;
    if (size <= 0) return [];
    const from = first - slice.start;
    const at = first - begin;
    const own = weights?.ownPart(bucket);
    const values = noGrad(() =>
      scope(() => {
        const part = own?.narrow(0, at, size) ?? slice.parameter.detach().reshape(-1).narrow(0, from, size);
        return keep(part.to('float32'));
      }),
    );
    return [{ slice, from, at, size, values }];
  });
  return { bucket, length, pieces, group };
}

/** The pieces end to end, as long as every rank's part; elements after the last parameter are zero. */
function joined(pieces: readonly Piece[], length: number, { device }: Bucket): Tensor {
  const parts = pieces.map(({ values }) => values.detach());
  const used = pieces.reduce((sum, { size }) => sum + size, 0);
  if (used < length) parts.push(zeros([length - used], { device }));
  return parts.length === 1 ? (parts[0] as Tensor).clone() : cat(parts, 0);
}

/** Each piece's gradient is its part of this rank's sum, which is freed with the last of them. */
function setPieces(pieces: readonly Piece[], own: Tensor, present: ReadonlySet<string>): void {
  scope(() =>
    noGrad(() => {
      for (const { slice, at, size, values } of pieces)
        if (present.has(slice.name)) values.grad = own.narrow(0, at, size);
    }),
  );
  own.dispose();
}
