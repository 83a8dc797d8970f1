/**
 * The gradients of one update, on their way to the sum over ranks. A bucket is handed in as soon as its gradients are
 * complete, and is sent while backward continues with the blocks below it.
 *
 *     const exchange = new Exchange(buckets, world, 'whole');
 *     exchange.begin(3);                     // its gradients are taken from the parameters
 *     …
 *     await exchange.settle();
 *     exchange.giveBack(present);            // … and come back as sums
 */
import { keep, noGrad, scope, type Tensor } from '../tensor/index.ts';
import { type Bucket, emptyLike, flattened, setGradients } from './buckets.ts';
import type { Group } from './group.ts';
import type { World } from './world.ts';

/**
 * `whole`: every rank gets the sum (all-reduce). `part`: every rank gets its part of the sum (reduce-scatter).
 * `ordered`: the same, summed from rank 0 to the last, so that rounds of micro-batches are summed in the order of
 * micro-batches.
 */
export type ExchangeKind = 'whole' | 'part' | 'ordered';

interface Sent {
  index: number;
  flat: Tensor;
  received: Tensor;
  /** How many ranks had a micro-batch. */
  ranks: number;
  /** The collective, for code that waits for it. */
  ticket: number;
}

/** Most buckets in flight at a time if each needs a second copy: a rank ahead of its neighbour waits for it. */
const mostOnTheWay = 2;

export class Exchange {
  readonly buckets: readonly Bucket[];
  /**
   * Buckets in the order in which backward completes them: the last block first, parameters outside blocks at the end.
   */
  readonly order: readonly number[];
  /** Names of the parameters that had a gradient here. */
  readonly present = new Set<string>();
  readonly #world: World;
  readonly #kind: ExchangeKind;
  readonly #sums: (Tensor | undefined)[];
  readonly #sent: Sent[] = [];

  constructor(buckets: readonly Bucket[], world: World, kind: ExchangeKind) {
    this.buckets = buckets;
    this.#world = world;
    this.#kind = kind;
    this.#sums = buckets.map(() => undefined);
    const depth = ({ block }: Bucket) => (block === null ? -1 : block);
    this.order = buckets
      .map((_, i) => i)
      .sort((a, b) => depth(buckets[b] as Bucket) - depth(buckets[a] as Bucket) || a - b);
  }

  /**
   * Takes a bucket's gradients from the parameters and hands them to the group. Every rank begins all buckets in one
   * order. Blocks if too many are in flight, because of the memory they take.
   */
  begin(index: number, ranks = this.#world.size): void {
    const bucket = this.buckets[index] as Bucket;
    scope(() => {
      for (const { name, parameter } of bucket.slices) if (parameter.grad !== null) this.present.add(name);
    });
    const group = this.#world.groupFor(bucket.device);
    if (group !== null) this.#makeRoomFor(bucket);
    const flat = flattened(bucket);
    for (const { parameter } of bucket.slices) parameter.grad = null;
    if (group === null) {
      this.#add(index, flat);
      flat.dispose();
      return;
    }
    this.#sent.push({ index, flat, ranks, ...this.#send(group, flat) });
  }

  /**
   * Waits until a bucket may be in flight with the current ones. The sums of f32 gradients are made in place and need
   * no further memory. The parameters outside blocks come last, when nothing is left to compute meanwhile, and may be
   * far larger than a block.
   */
  #makeRoomFor({ block, dtype }: Bucket): void {
    if (this.#kind === 'whole' && dtype === 'float32') return;
    this.#settleDownTo(block === null ? 0 : mostOnTheWay - 1);
  }

  #send(group: Group, flat: Tensor): Pick<Sent, 'received' | 'ticket'> {
    if (this.#kind === 'whole') return { received: flat, ticket: group.start('all_reduce', flat) };
    const isPart = this.#kind === 'part';
    const received = emptyLike(flat, isPart ? flat.numel / this.#world.size : flat.numel);
    const ticket = group.start(isPart ? 'reduce_scatter_tensor' : 'all_to_all', received, flat);
    return { received, ticket };
  }

  /** Waits for everything that was begun. */
  async settle(): Promise<void> {
    const groups = new Set(this.#sent.map(({ index }) => this.#groupOf(index)));
    for (const group of groups) await group.flush();
    this.#settleDownTo(0);
  }

  #settleDownTo(most: number): void {
    while (this.#sent.length > most) {
      const sent = this.#sent.shift() as Sent;
      this.#groupOf(sent.index).join(sent.ticket);
      this.#absorb(sent);
    }
  }

  #absorb({ index, flat, received, ranks }: Sent): void {
    if (this.#kind === 'ordered') {
      const part = received.numel / this.#world.size;
      scope(() => {
        for (let rank = 0; rank < ranks; rank++) this.#add(index, received.narrow(0, rank * part, part));
      });
      received.dispose();
    } else if (this.#sums[index] === undefined) {
      this.#sums[index] = this.#kept(received, (this.buckets[index] as Bucket).dtype);
    } else {
      this.#add(index, received);
      received.dispose();
    }
    if (received !== flat) flat.dispose();
  }

  /** Whole sums become gradients of the parameters' dtype. */
  #kept(sum: Tensor, dtype: Bucket['dtype']): Tensor {
    if (this.#kind !== 'whole' || dtype === sum.dtype) return sum;
    const kept = noGrad(() => scope(() => keep(sum.to(dtype))));
    sum.dispose();
    return kept;
  }

  #add(index: number, part: Tensor): void {
    noGrad(() => {
      const sum = this.#sums[index];
      if (sum !== undefined) sum.add_(part);
      else this.#sums[index] = emptyLike(part).copy_(part);
    });
  }

  /** This rank's part of every bucket; the caller frees them. */
  takeParts(): Tensor[] {
    const parts = this.#sums.map((sum) => sum as Tensor);
    this.#sums.fill(undefined);
    return parts;
  }

  /** Sets every parameter's gradient to the whole sum. */
  async giveBack(present: ReadonlySet<string>): Promise<void> {
    for (const [i, bucket] of this.buckets.entries()) {
      const sum = this.#sums[i] as Tensor;
      const isPart = this.#kind !== 'whole' && this.#world.size > 1;
      const whole = isPart ? emptyLike(sum, bucket.length) : sum;
      if (isPart) await this.#groupOf(i).allGather(whole, sum);
      setGradients(bucket, whole, (name) => present.has(name));
      if (isPart) whole.dispose();
    }
    this.dispose();
  }

  #groupOf(index: number): Group {
    const group = this.#world.groupFor((this.buckets[index] as Bucket).device);
    if (group === null) throw new Error('a world of one has no group');
    return group;
  }

  dispose(): void {
    for (const sum of this.#sums) sum?.dispose();
    this.#sums.fill(undefined);
  }
}

/** Hands buckets to the exchange while backward runs; the decoder reports when a block is done. */
export class OverlappedPass {
  readonly recomputes = false;
  readonly #exchange: Exchange;
  readonly #ranks: number;
  /** How many buckets of the order have begun. */
  #begun = 0;

  constructor(exchange: Exchange, ranks: number) {
    this.#exchange = exchange;
    this.#ranks = ranks;
  }

  beforeForward(): void {}
  afterForward(): void {}
  beforeBackward(): void {}

  /** Begins the buckets of this block and of those above it, which are complete too. */
  afterBackward(block: number): void {
    this.#beginWhile((bucket) => bucket.block !== null && bucket.block >= block);
  }

  /** Begins the remaining buckets: every rank begins all of them, in one order, whatever it computed. */
  finish(): void {
    this.#beginWhile(() => true);
  }

  #beginWhile(holds: (bucket: Bucket) => boolean): void {
    const { order, buckets } = this.#exchange;
    for (; this.#begun < order.length; this.#begun++) {
      const index = order[this.#begun] as number;
      if (!holds(buckets[index] as Bucket)) return;
      this.#exchange.begin(index, this.#ranks);
    }
  }
}
