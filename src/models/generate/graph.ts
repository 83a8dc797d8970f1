/**
 * Decoding on CUDA without the host: one step of all slots is captured as a graph and replayed; tokens, positions and who is
 * done live on the device, and the host looks only every few tokens. A step then costs what its kernels cost.
 */
import {
  arange,
  Graph,
  keep,
  noGrad,
  ones,
  Stream,
  scope,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache.ts';
import { decode } from './decoding.ts';
import type { Reply } from './request.ts';
import { type RuleTensors, sampleNext } from './sampling.ts';

/** Tokens between two looks of the host; with a caller that watches token by token, fewer. */
const TOKENS_PER_LOOK = 16;
const WATCHED_TOKENS_PER_LOOK = 2;

export class GraphDecoder {
  /** The decoder's count of changes that this graph holds for. */
  readonly arrangement: number;
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #slots: Tensor;
  readonly #ids: Tensor;
  readonly #positions: Tensor;
  /** The position past which a reply may not go; 0 where nobody writes. */
  readonly #limits: Tensor;
  readonly #rule: RuleTensors;
  /** What the last steps gave, [TOKENS_PER_LOOK, slots]; `#tick` is the row that comes next. */
  readonly #outIds: Tensor;
  readonly #outLogp: Tensor;
  readonly #tick: Tensor;
  readonly #stream: Stream;
  /** The decoder may grow its tables meanwhile; the graph reads the ones it was captured with. */
  readonly #tables: Tensor[];
  #graph: Graph | null = null;

  constructor(decoder: Decoder, cache: KvCache) {
    const { device } = decoder;
    const { slots } = cache;
    const whole = (count: number[]) => keep(zeros(count, { dtype: 'int64', device }));
    this.arrangement = decoder.arrangement;
    this.#decoder = decoder;
    this.#stream = new Stream(device);
    this.#cache = cache;
    this.#slots = keep(arange(0, slots, 1, { device }));
    this.#ids = whole([slots]);
    this.#positions = whole([slots]);
    this.#limits = whole([slots]);
    this.#rule = {
      temperature: keep(ones([slots], { device })),
      topK: whole([slots]),
      topP: keep(ones([slots], { device })),
      minP: keep(zeros([slots], { device })),
      seeds: whole([slots]),
    };
    this.#outIds = whole([TOKENS_PER_LOOK, slots]);
    this.#outLogp = keep(zeros([TOKENS_PER_LOOK, slots], { device }));
    this.#tick = whole([1]);
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  /** Several tokens for every active reply, all at most until it is done. */
  run(active: readonly Reply[]): void {
    this.#upload(active);
    const watched = active.some((reply) => reply.request.onToken !== undefined || reply.request.signal !== undefined);
    const most = Math.max(...active.map((reply) => reply.request.maxNewTokens - reply.ids.length));
    const steps = Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : TOKENS_PER_LOOK);
    this.#graph ??= Graph.capture(() => this.#step(), { stream: this.#stream });
    this.#upload(active); // capturing ran the step
    for (let i = 0; i < steps; i++) this.#graph.replay();
    const ids = this.#outIds.data() as BigInt64Array;
    const logps = this.#outLogp.data() as Float32Array;
    const { slots } = this.#cache;
    for (const reply of active) {
      for (let step = 0; step < steps && reply.finish === null; step++) {
        const at = step * slots + reply.slot;
        reply.push(Number(ids[at]), logps[at] as number);
      }
    }
  }

  /** The host's view of who writes what, onto the device. Slots that nobody writes stand still at position 0. */
  #upload(active: readonly Reply[]): void {
    const { slots } = this.#cache;
    const ids = new BigInt64Array(slots);
    const positions = new BigInt64Array(slots);
    const limits = new BigInt64Array(slots);
    const topK = new BigInt64Array(slots);
    const seeds = new BigInt64Array(slots);
    const temperature = new Float32Array(slots).fill(1);
    const topP = new Float32Array(slots).fill(1);
    const minP = new Float32Array(slots);
    for (const reply of active) {
      const { slot, rule } = reply;
      ids[slot] = BigInt(reply.last);
      positions[slot] = BigInt(reply.position);
      limits[slot] = BigInt(reply.promptLength + reply.request.maxNewTokens - 1);
      topK[slot] = BigInt(rule.topK);
      seeds[slot] = BigInt(reply.seed);
      temperature[slot] = rule.temperature;
      topP[slot] = rule.topP;
      minP[slot] = rule.minP;
    }
    scope(() => {
      const fill = (target: Tensor, values: ArrayBufferView) => target.copy_(tensor(values));
      fill(this.#ids, ids);
      fill(this.#positions, positions);
      fill(this.#limits, limits);
      fill(this.#rule.topK, topK);
      fill(this.#rule.seeds, seeds);
      fill(this.#rule.temperature, temperature);
      fill(this.#rule.topP, topP);
      fill(this.#rule.minP, minP);
      this.#tick.zero_();
    });
  }

  /** What the graph records: decode, draw, note, advance. Nothing here reads a value back. */
  #step(): void {
    scope(() =>
      noGrad(() => {
        const hidden = decode(this.#decoder, this.#cache, this.#ids, this.#positions, this.#slots);
        const { ids, logp } = sampleNext(this.#decoder.logits(hidden), this.#rule, this.#positions.add(1));
        this.#outIds.indexCopy_(0, this.#tick, ids.unsqueeze(0));
        this.#outLogp.indexCopy_(0, this.#tick, logp.unsqueeze(0));
        this.#tick.copy_(this.#tick.add(1).remainder(TOKENS_PER_LOOK));
        const going = this.#positions.lt(this.#limits);
        this.#positions.copy_(where(going, this.#positions.add(1), this.#positions));
        this.#ids.copy_(ids);
      }),
    );
  }

  dispose(): void {
    this.#graph?.dispose();
    const own = [
      this.#slots,
      this.#ids,
      this.#positions,
      this.#limits,
      this.#outIds,
      this.#outLogp,
      this.#tick,
      ...this.#tables,
    ];
    for (const tensor of [...own, ...Object.values(this.#rule)]) tensor.dispose();
  }
}
