/**
 * Weights sharded over the ranks (ZeRO-3; Rajbhandari et al. 2020): a rank holds 1/N of every block and gathers a block
 * only while it is used. A parameter keeps its handle, its shape and its gradient; only its memory comes and goes.
 *
 *     await weights.beginUpdate();        // the whole weights are freed
 *     …                                   // blocks come and go (sharded-pass.ts)
 *     weights.endUpdate();
 *     await weights.makeWhole();          // for sampling, evaluation and checkpoints
 */
import { native } from '../../tensor/engine/native.ts';
import { dtypeBytes, empty, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import { type Bucket, bytesOf, emptyLike } from '../buckets.ts';
import type { Group } from '../group.ts';
import type { World } from '../world.ts';
import { checkRoom } from './room.ts';

/** A bucket of weights: this rank's part, and the whole while it is gathered. */
class LentBucket {
  readonly bucket: Bucket;
  /** This rank's part, in the weights' dtype. */
  readonly own: Tensor;
  readonly #group: Group;
  readonly #begin: number;
  #gathering: { whole: Tensor; bytes: readonly Tensor[]; ticket: number } | null = null;

  constructor(bucket: Bucket, group: Group, world: Pick<World, 'rank' | 'size'>) {
    this.bucket = bucket;
    this.#group = group;
    const length = bucket.length / world.size;
    this.#begin = world.rank * length;
    this.own = keep(empty([length], { dtype: bucket.dtype, device: bucket.device }).zero_());
    this.takeOwn();
  }

  /** Copies this rank's part out of the whole weights. */
  takeOwn(): void {
    const end = this.#begin + this.own.numel;
    scope(() =>
      noGrad(() => {
        for (const { parameter, start, size } of this.bucket.slices) {
          const first = Math.max(this.#begin, start);
          const count = Math.min(end, start + size) - first;
          if (count <= 0) continue;
          const part = parameter
            .detach()
            .reshape(-1)
            .narrow(0, first - start, count);
          this.own.narrow(0, first - this.#begin, count).copy_(part);
        }
      }),
    );
  }

  /** Starts to gather, for `join` within a pass, which cannot await. */
  start(): void {
    if (this.#gathering !== null) return;
    const { whole, bytes } = this.#buffers();
    this.#gathering = { whole, bytes, ticket: this.#group.start('all_gather_into_tensor', ...bytes) };
  }

  join(): void {
    if (this.#gathering === null) throw new Error('a bucket is waited for that was not begun');
    const { whole, bytes, ticket } = this.#gathering;
    this.#gathering = null;
    this.#group.join(ticket);
    this.#lend(whole, bytes);
  }

  async gather(): Promise<void> {
    const { whole, bytes } = this.#buffers();
    await this.#group.allGather(...bytes);
    this.#lend(whole, bytes);
  }

  #buffers(): { whole: Tensor; bytes: [Tensor, Tensor] } {
    const whole = emptyLike(this.own, this.bucket.length);
    return { whole, bytes: [bytesOf(whole), bytesOf(this.own)] };
  }

  /** Every parameter's memory is its part of the whole, which lives as long as one of them uses it. */
  #lend(whole: Tensor, bytes: readonly Tensor[]): void {
    const size = dtypeBytes[this.bucket.dtype];
    for (const { parameter, start } of this.bucket.slices)
      native.storageLend(parameter.live('lend'), whole.live('lend'), start * size);
    for (const tensor of [whole, ...bytes]) tensor.dispose();
  }

  drop(): void {
    for (const { parameter } of this.bucket.slices) native.storageDrop(parameter.live('drop'));
  }

  get wholeBytes(): number {
    return this.bucket.length * dtypeBytes[this.bucket.dtype];
  }
}

export class ShardedWeights {
  /** By block. Weights outside blocks (embedding, final norm, head) are whole throughout an update. */
  readonly #blocks: LentBucket[][] = [];
  readonly #rest: LentBucket[] = [];
  readonly #parts = new Map<Bucket, LentBucket>();
  #isWhole = true;

  constructor(buckets: readonly Bucket[], world: World) {
    for (const bucket of buckets) {
      const group = world.groupFor(bucket.device);
      if (group === null) throw new Error('a world of one has nothing to deal');
      const lent = new LentBucket(bucket, group, world);
      this.#parts.set(bucket, lent);
      if (bucket.block === null) this.#rest.push(lent);
      else this.#blocks[bucket.block] = [...(this.#blocks[bucket.block] ?? []), lent];
    }
    for (let i = 0; i < this.#blocks.length; i++) this.#blocks[i] ??= [];
  }

  get blockCount(): number {
    return this.#blocks.length;
  }
  get isWhole(): boolean {
    return this.#isWhole;
  }
  /** Bytes of the weights: of all of them, and the most that a rank has during an update. */
  get bytes(): { whole: number; inUpdate: number } {
    const sum = (lents: readonly LentBucket[]) => lents.reduce((all, lent) => all + lent.wholeBytes, 0);
    const whole = sum([...this.#parts.values()]);
    const own = [...this.#parts.values()].reduce(
      (all, { own: part, bucket }) => all + part.numel * dtypeBytes[bucket.dtype],
      0,
    );
    return { whole, inUpdate: own + sum(this.#rest) + 2 * Math.max(0, ...this.#blocks.map(sum)) };
  }

  /** This rank's part of a bucket; undefined for buckets whose weights are whole on every rank. */
  ownPart(bucket: Bucket): Tensor | undefined {
    return this.#parts.get(bucket)?.own;
  }

  /** Before an update: frees the blocks, and keeps the rest whole. Every rank calls it. */
  async beginUpdate(): Promise<void> {
    if (!this.#isWhole) {
      for (const lent of this.#rest) await lent.gather();
      return;
    }
    for (const lent of this.#parts.values()) lent.takeOwn();
    for (const lent of this.#blocks.flat()) lent.drop();
    this.#isWhole = false;
  }

  /** After the last micro-batch, before the optimiser's step. */
  endUpdate(): void {
    for (const lent of this.#rest) lent.drop();
  }

  /** Gathers the current weights, block by block; false if they are already whole. Every rank calls it. */
  async makeWhole(): Promise<boolean> {
    if (this.#isWhole) return false;
    const lents = [...this.#parts.values()];
    for (const [device, own] of Map.groupBy(lents, ({ bucket }) => bucket.device))
      checkRoom(
        own.reduce((sum, lent) => sum + lent.wholeBytes, 0),
        device,
      );
    for (const lent of lents) await lent.gather();
    this.#isWhole = true;
    return true;
  }

  start(block: number): void {
    for (const lent of this.#blocks[block] ?? []) lent.start();
  }
  join(block: number): void {
    for (const lent of this.#blocks[block] ?? []) lent.join();
  }
  drop(block: number): void {
    for (const lent of this.#blocks[block] ?? []) lent.drop();
  }

  dispose(): void {
    for (const { own } of this.#parts.values()) own.dispose();
  }
}
