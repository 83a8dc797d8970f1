/** Sums of gradients over ranks and micro-batches. */
import { noGrad, scope, type Tensor } from '../tensor/index.ts';
import { type Bucket, emptyLike, flattened, setGradients } from './buckets.ts';
import type { World } from './world.ts';

type Named = Iterable<readonly [string, Tensor]>;

/** The names of the parameters that have a gradient here. */
export function gradientNames(parameters: Named): string[] {
  return scope(() => Array.from(parameters).flatMap(([name, parameter]) => (parameter.grad === null ? [] : [name])));
}

/** Every rank's gradients become their sum. Buckets are handed to the group one after another, without waiting. */
export async function sumGradients(
  buckets: readonly Bucket[],
  world: World,
  present: ReadonlySet<string>,
): Promise<void> {
  const flats = buckets.map((bucket) => {
    const flat = flattened(bucket);
    return { bucket, flat, done: world.groupFor(bucket.device)?.allReduce(flat) };
  });
  for (const { bucket, flat, done } of flats) {
    await done;
    setGradients(bucket, flat, (name) => present.has(name));
    flat.dispose();
  }
}

/**
 * The sum of the micro-batches' gradients from the first to the last, whoever computed them: 1, 2 and 4 ranks add the same
 * numbers in the same order. Each rank adds up its own part of every bucket.
 */
export class OrderedSum {
  readonly #buckets: readonly Bucket[];
  readonly #world: World;
  /** This rank's part of each bucket, so far. */
  readonly #sums: (Tensor | undefined)[];

  constructor(buckets: readonly Bucket[], world: World) {
    this.#buckets = buckets;
    this.#world = world;
    this.#sums = buckets.map(() => undefined);
  }

  /** Adds a round: micro-batches of as many ranks, beginning with rank 0; each has its own in `.grad`. */
  async add(ranks: number): Promise<void> {
    const flats = this.#buckets.map(flattened);
    const { size } = this.#world;
    if (size === 1) {
      for (const [i, flat] of flats.entries()) this.#append(i, [flat]);
      for (const flat of flats) flat.dispose();
      return;
    }
    const received = flats.map((flat) => emptyLike(flat));
    await Promise.all(flats.map((flat, i) => this.#group(i).allToAll(received[i] as Tensor, flat)));
    for (const [i, whole] of received.entries()) {
      const part = whole.numel / size;
      scope(() =>
        this.#append(
          i,
          Array.from({ length: ranks }, (_, rank) => whole.narrow(0, rank * part, part)),
        ),
      );
    }
    for (const tensor of [...flats, ...received]) tensor.dispose();
  }

  #group(bucket: number) {
    const group = this.#world.groupFor((this.#buckets[bucket] as Bucket).device);
    if (group === null) throw new Error('a world of one has no group');
    return group;
  }

  #append(bucket: number, parts: readonly Tensor[]): void {
    noGrad(() => {
      for (const part of parts) {
        const sum = this.#sums[bucket];
        if (sum !== undefined) sum.add_(part);
        else this.#sums[bucket] = emptyLike(part).copy_(part);
      }
    });
  }

  /** This rank's part of every bucket; whoever takes them frees them. */
  takeParts(): Tensor[] {
    const parts = this.#sums.map((sum) => sum as Tensor);
    this.#sums.fill(undefined);
    return parts;
  }

  /** Sets every parameter's gradient to the whole sum. */
  async finish(present: ReadonlySet<string>): Promise<void> {
    for (const [i, bucket] of this.#buckets.entries()) {
      const sum = this.#sums[i] as Tensor;
      const whole = this.#world.size === 1 ? sum : emptyLike(sum, bucket.length);
      if (whole !== sum) await this.#group(i).allGather(whole, sum);
      setGradients(bucket, whole, (name) => present.has(name));
      if (whole !== sum) whole.dispose();
    }
    this.dispose();
  }

  dispose(): void {
    for (const sum of this.#sums) sum?.dispose();
    this.#sums.fill(undefined);
  }
}
