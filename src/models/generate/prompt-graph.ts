/**
 * Reads short prompts, and the rest of long ones, on CUDA without the host: one pass over a fixed number of tokens is
 * captured as a CUDA graph. Launched one by one from the host, a model's kernels take longer to start than a few
 * hundred tokens take to read. Missing tokens write into the spare slot.
 */
import { keep, noGrad, type Recorded, Recorder, scope, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import { BLOCK, type KvCache } from './cache/cache.ts';
import { type ContinuedPrompt, readTokens, tokensLeft } from './decoding.ts';
import type { Row } from './row.ts';
import { type Drawn, sampleNext } from './sampling.ts';

/** The passes' sizes in tokens: a prompt is read by the smallest pass that fits it. */
const SIZES = [64, 256] as const;
/** Most responses in one pass. */
const RESPONSES = 16;

/** A prompt with the responses whose first tokens are drawn after it. */
export interface PromptOfRows extends ContinuedPrompt {
  rows: readonly Row[];
}

/** The passes of all sizes, captured on first use. */
export class PromptGraphs {
  /** The value of `Decoder.arrangement` that the graphs are valid for. */
  readonly arrangement: number;
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #recorder: Recorder;
  readonly #bySize = new Map<number, PromptGraph>();

  constructor(decoder: Decoder, cache: KvCache) {
    this.#recorder = new Recorder(decoder.device);
    this.arrangement = decoder.arrangement;
    this.#decoder = decoder;
    this.#cache = cache;
  }

  /** The pass that reads these prompts; null if there is none. */
  of(items: readonly PromptOfRows[]): PromptGraph | null {
    const tokens = items.reduce((sum, { prompt, from }) => sum + prompt.length - from, 0);
    const rows = items.flatMap((item) => item.rows);
    const size = SIZES.find((most) => tokens <= most);
    if (size === undefined || rows.length > RESPONSES || rows.some((row) => row.needsLogits)) return null;
    const graph = this.#bySize.get(size) ?? new PromptGraph(this.#recorder, this.#decoder, this.#cache, size);
    this.#bySize.set(size, graph);
    return graph;
  }

  dispose(): void {
    this.#recorder.dispose();
    for (const graph of this.#bySize.values()) graph.dispose();
    this.#bySize.clear();
  }
}

/** What is uploaded for each response besides its rule's fractions. */
const WHOLE = ['last', 'counters', 'topK', 'seeds'] as const;
const FRACTIONS = ['temperature', 'topP', 'minP'] as const;

/** The pass of one size. */
class PromptGraph {
  readonly #recorder: Recorder;
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  readonly #size: number;
  /**
   * ids, positions, slots and targets of the tokens, then WHOLE of the responses; the rest of their rules is in
   * `#fractions`.
   */
  readonly #whole: Tensor;
  readonly #fractions: Tensor;
  /** ids, log-probs and kept shares of the drawn tokens, in f64, which represents all of them exactly: one read. */
  readonly #drawn: Tensor;
  /** The tables that the graph was captured with: it reads them even after the decoder has made larger ones. */
  readonly #tables: Tensor[];
  #graph: Recorded | null = null;

  constructor(recorder: Recorder, decoder: Decoder, cache: KvCache, size: number) {
    const { device } = decoder;
    this.#recorder = recorder;
    this.#decoder = decoder;
    this.#cache = cache;
    this.#size = size;
    this.#whole = keep(zeros([4 * size + WHOLE.length * RESPONSES], { dtype: 'int64', device }));
    this.#fractions = keep(zeros([FRACTIONS.length * RESPONSES], { device }));
    this.#drawn = keep(zeros([3, RESPONSES], { dtype: 'float64', device }));
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  /** Reads the prompts into their slots and draws the first token of each row, in the order of the items. */
  read(items: readonly PromptOfRows[]): Drawn {
    this.#upload(items);
    // Recording writes what the first replay then overwrites.
    this.#graph ??= this.#recorder.record(() => this.#pass());
    this.#graph.replay();
    const count = items.reduce((sum, { rows }) => sum + rows.length, 0);
    const drawn = this.#drawn.data() as Float64Array;
    const part = (i: number) => Array.from(drawn.subarray(i * RESPONSES, i * RESPONSES + count));
    return { ids: part(0), logprobs: part(1), kept: part(2) };
  }

  #upload(items: readonly PromptOfRows[]): void {
    const { blocks, slots } = this.#cache;
    const size = this.#size;
    const { last, ...left } = tokensLeft(items, this.#cache);
    const whole = new BigInt64Array(this.#whole.numel);
    const fractions = new Float32Array(this.#fractions.numel);
    whole.fill(BigInt(slots), 2 * size, 3 * size); // the spare slot, the first position of the spare block
    whole.fill(BigInt(blocks * BLOCK), 3 * size, 4 * size);
    [left.ids, left.positions, left.slots, left.targets].forEach((values, part) => {
      for (let i = 0; i < values.length; i++) whole[part * size + i] = BigInt(values[i] as number);
    });
    const responses = items.flatMap((item, i) => item.rows.map((row) => ({ row, last: last[i] as number })));
    for (let i = 0; i < RESPONSES; i++) {
      // idle ones draw what the first one draws
      const { row, last } = (responses[i] ?? responses[0]) as (typeof responses)[number];
      const { topK, temperature, topP, minP } = row.rule;
      // a token's counter is its position, so that a seed gives the same random number in any batch
      [last, row.position + 1, topK, row.seed].forEach((value, part) => {
        whole[4 * size + part * RESPONSES + i] = BigInt(value);
      });
      [temperature, topP, minP].forEach((value, part) => {
        fractions[part * RESPONSES + i] = value;
      });
    }
    scope(() => {
      this.#whole.copy_(tensor(whole));
      this.#fractions.copy_(tensor(fractions));
    });
  }

  #pass(): void {
    scope(() =>
      noGrad(() => {
        const ofTokens = (i: number) => this.#whole.narrow(0, i * this.#size, this.#size);
        const tokens = { ids: ofTokens(0), positions: ofTokens(1), slots: ofTokens(2), targets: ofTokens(3) };
        const whole = (name: (typeof WHOLE)[number]) =>
          this.#whole.narrow(0, 4 * this.#size + WHOLE.indexOf(name) * RESPONSES, RESPONSES);
        const fraction = (name: (typeof FRACTIONS)[number]) =>
          this.#fractions.narrow(0, FRACTIONS.indexOf(name) * RESPONSES, RESPONSES);
        const hidden = readTokens(this.#decoder, this.#cache, tokens, whole('last'));
        const rule = {
          temperature: fraction('temperature'),
          topP: fraction('topP'),
          minP: fraction('minP'),
          topK: whole('topK'),
          seeds: whole('seeds'),
        };
        const { ids, logp, kept } = sampleNext(this.#decoder.logits(hidden), rule, whole('counters'));
        for (const [i, values] of [ids, logp, kept].entries()) this.#drawn.select(0, i).copy_(values);
      }),
    );
  }

  dispose(): void {
    for (const own of [this.#whole, this.#fractions, this.#drawn, ...this.#tables]) own.dispose();
  }
}
