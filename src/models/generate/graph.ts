/**
 * Decoding on CUDA without the host: one step of all slots, by the plan or by the general path (stepper.ts), is captured as a
 * CUDA graph and replayed. Tokens, positions and which rows are done stay on the device; the host reads them every few tokens.
 * So a step costs only what its kernels cost.
 */
import { Graph, keep, noGrad, ones, Stream, scope, type Tensor, tensor, where, zeros } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache.ts';
import type { Row } from './row.ts';
import type { RuleTensors } from './sampling.ts';
import { Stepper } from './stepper.ts';

/** Tokens between two reads by the host; fewer where a caller follows token by token. */
const TOKENS_PER_LOOK = 16;
const WATCHED_TOKENS_PER_LOOK = 2;

export class GraphDecoder {
  /** The value of `Decoder.arrangement` that this graph is valid for. */
  readonly arrangement: number;
  readonly #stepper: Stepper;
  readonly #cache: KvCache;
  readonly #slots: Tensor;
  readonly #ids: Tensor;
  readonly #positions: Tensor;
  /** The last position of each response; 0 for an idle row. */
  readonly #limits: Tensor;
  readonly #rule: RuleTensors;
  /** The tokens of the last steps, [TOKENS_PER_LOOK, slots]; `#tick` is the next row to write. */
  readonly #outIds: Tensor;
  readonly #outLogp: Tensor;
  readonly #outKept: Tensor;
  readonly #tick: Tensor;
  readonly #stream: Stream;
  /** The tables that the graph was captured with: it reads them even after the decoder has made larger ones. */
  readonly #tables: Tensor[];
  #graph: Graph | null = null;

  constructor(decoder: Decoder, cache: KvCache) {
    const { device } = decoder;
    const { slots } = cache;
    const whole = (count: number[]) => keep(zeros(count, { dtype: 'int64', device }));
    this.arrangement = decoder.arrangement;
    this.#stepper = new Stepper(decoder, cache);
    this.#stream = new Stream(device);
    this.#cache = cache;
    this.#slots = whole([slots]);
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
    this.#outKept = keep(zeros([TOKENS_PER_LOOK, slots], { device }));
    this.#tick = whole([1]);
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  /** Writes several tokens for every row, none after it is done. `watched`: a caller follows token by token. */
  run(active: readonly Row[], watched: boolean): void {
    this.#upload(active);
    const most = Math.max(...active.map((row) => row.request.maxNewTokens - row.ids.length));
    const steps = Math.min(most, watched ? WATCHED_TOKENS_PER_LOOK : TOKENS_PER_LOOK);
    this.#graph ??= Graph.capture(() => this.#step(), { stream: this.#stream });
    this.#upload(active); // capturing ran the step and changed the state
    for (let i = 0; i < steps; i++) this.#graph.replay();
    const ids = this.#outIds.data() as BigInt64Array;
    const logps = this.#outLogp.data() as Float32Array;
    const kept = this.#outKept.data() as Float32Array;
    const { slots } = this.#cache;
    for (const row of active) {
      for (let step = 0; step < steps && row.finish === null; step++) {
        const at = step * slots + row.slot;
        row.push(Number(ids[at]), logps[at] as number, kept[at] as number);
      }
    }
  }

  /** Uploads the state of the rows. Idle rows stay at position 0 of the spare slot. */
  #upload(active: readonly Row[]): void {
    const { slots } = this.#cache;
    const ids = new BigInt64Array(slots);
    const positions = new BigInt64Array(slots);
    const limits = new BigInt64Array(slots);
    const places = new BigInt64Array(slots).fill(BigInt(slots)); // the spare slot
    const topK = new BigInt64Array(slots);
    const seeds = new BigInt64Array(slots);
    const temperature = new Float32Array(slots).fill(1);
    const topP = new Float32Array(slots).fill(1);
    const minP = new Float32Array(slots);
    for (const row of active) {
      const { slot, rule } = row;
      places[slot] = BigInt(slot);
      ids[slot] = BigInt(row.last);
      positions[slot] = BigInt(row.position);
      limits[slot] = BigInt(row.promptLength + row.request.maxNewTokens - 1);
      topK[slot] = BigInt(rule.topK);
      seeds[slot] = BigInt(row.seed);
      temperature[slot] = rule.temperature;
      topP[slot] = rule.topP;
      minP[slot] = rule.minP;
    }
    scope(() => {
      const fill = (target: Tensor, values: ArrayBufferView) => target.copy_(tensor(values));
      fill(this.#slots, places);
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

  /** The recorded step: decode, draw, store, advance. Nothing here reads a value back to the host. */
  #step(): void {
    scope(() =>
      noGrad(() => {
        const rows = { ids: this.#ids, positions: this.#positions, slots: this.#slots };
        const { ids, logp, kept } = this.#stepper.next(rows, this.#rule);
        this.#outIds.indexCopy_(0, this.#tick, ids.unsqueeze(0));
        this.#outLogp.indexCopy_(0, this.#tick, logp.unsqueeze(0));
        this.#outKept.indexCopy_(0, this.#tick, kept.unsqueeze(0));
        this.#tick.copy_(this.#tick.add(1).remainder(TOKENS_PER_LOOK));
        const going = this.#positions.lt(this.#limits);
        this.#positions.copy_(where(going, this.#positions.add(1), this.#positions));
        this.#ids.copy_(ids);
      }),
    );
  }

  dispose(): void {
    this.#graph?.dispose();
    this.#stepper.dispose();
    const own = [
      this.#slots,
      this.#ids,
      this.#positions,
      this.#limits,
      this.#outIds,
      this.#outLogp,
      this.#outKept,
      this.#tick,
      ...this.#tables,
    ];
    for (const tensor of [...own, ...Object.values(this.#rule)]) tensor.dispose();
  }
}
