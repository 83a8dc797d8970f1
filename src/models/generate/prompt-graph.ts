/**
 * Reading short prompts, and the rest of long ones, on CUDA without the host: one pass over a fixed number of tokens is captured
 * as a CUDA graph. Started one by one from the host, a model's kernels take longer to start than a few hundred tokens take to
 * read. Tokens that are not there write into the spare slot.
 */
import { Graph, keep, noGrad, Stream, scope, synchronize, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { KvCache } from './cache.ts';
import { type ContinuedPrompt, readTokens, tokensLeft } from './decoding.ts';
import type { Row } from './row.ts';
import { type Drawn, type DrawnTensors, onHost, type RuleTensors, ruleTensors, sampleNext } from './sampling.ts';

/** Tokens and responses of one pass. */
const TOKENS = 256;
const RESPONSES = 16;

/** A prompt with the responses whose first tokens are drawn after it. */
export interface PromptOfRows extends ContinuedPrompt {
  rows: readonly Row[];
}

export class PromptGraph {
  /** The value of `Decoder.arrangement` that this graph is valid for. */
  readonly arrangement: number;
  readonly #decoder: Decoder;
  readonly #cache: KvCache;
  /** ids, positions, slots and targets of the tokens, [4, TOKENS]. */
  readonly #tokens: Tensor;
  /** For each response, its prompt's last token and its counter, [2, RESPONSES]. */
  readonly #responses: Tensor;
  readonly #rule: RuleTensors;
  readonly #drawn: DrawnTensors;
  /** The tables that the graph was captured with: it reads them even after the decoder has made larger ones. */
  readonly #tables: Tensor[];
  #graph: Graph | null = null;

  constructor(decoder: Decoder, cache: KvCache) {
    const { device } = decoder;
    const whole = (shape: number[]) => keep(zeros(shape, { dtype: 'int64', device }));
    const fractions = () => keep(zeros([RESPONSES], { device }));
    this.arrangement = decoder.arrangement;
    this.#decoder = decoder;
    this.#cache = cache;
    this.#tokens = whole([4, TOKENS]);
    this.#responses = whole([2, RESPONSES]);
    this.#rule = {
      ...{ temperature: fractions(), topP: fractions(), minP: fractions() },
      ...{ topK: whole([RESPONSES]), seeds: whole([RESPONSES]) },
    };
    this.#drawn = { ids: whole([RESPONSES]), logp: fractions(), kept: fractions() };
    const rope = decoder.spec.positions.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
    const tables = [rope?.cos, rope?.sin, decoder.biasUpTo(cache.length)];
    this.#tables = tables.flatMap((table) => (table ? [keep(table.detach())] : []));
  }

  /** Whether one pass reads these. */
  static takes(items: readonly PromptOfRows[]): boolean {
    const tokens = items.reduce((sum, { prompt, from }) => sum + prompt.length - from, 0);
    const rows = items.flatMap((item) => item.rows);
    return tokens <= TOKENS && rows.length <= RESPONSES && !rows.some((row) => row.needsLogits);
  }

  /** Reads the prompts into their slots and draws the first token of each row, in the order of the items. */
  read(items: readonly PromptOfRows[]): Drawn {
    const count = items.reduce((sum, { rows }) => sum + rows.length, 0);
    this.#upload(items);
    // The warm-up of a capture writes what the first replay writes again.
    this.#graph ??= Graph.capture(() => this.#pass(), { stream: new Stream(this.#decoder.device) });
    this.#graph.replay();
    const { ids, logprobs, kept } = onHost(this.#drawn);
    return { ids: ids.slice(0, count), logprobs: logprobs.slice(0, count), kept: kept.slice(0, count) };
  }

  #upload(items: readonly PromptOfRows[]): void {
    const { length, slots } = this.#cache;
    const { last, ...left } = tokensLeft(items, length);
    const tokens = new BigInt64Array(4 * TOKENS);
    tokens.fill(BigInt(slots), 2 * TOKENS, 3 * TOKENS); // the spare slot, its first position
    tokens.fill(BigInt(slots * length), 3 * TOKENS);
    [left.ids, left.positions, left.slots, left.targets].forEach((values, part) => {
      for (const [i, value] of values.entries()) tokens[part * TOKENS + i] = BigInt(value);
    });
    const rows = items.flatMap((item) => item.rows);
    const responses = new BigInt64Array(2 * RESPONSES);
    items
      .flatMap((item, i) => item.rows.map((row) => [last[i] as number, row.position + 1] as const))
      .forEach(([at, counter], i) => {
        responses[i] = BigInt(at);
        // a token's counter is its position, so that a seed gives the same random number in any batch
        responses[RESPONSES + i] = BigInt(counter);
      });
    const padded = Array.from({ length: RESPONSES }, (_, i) => (rows[i] ?? rows[0]) as Row);
    scope(() => {
      this.#tokens.copy_(tensor(tokens, { shape: [4, TOKENS] }));
      this.#responses.copy_(tensor(responses, { shape: [2, RESPONSES] }));
      const rule = ruleTensors(
        padded.map((row) => row.rule),
        padded.map((row) => row.seed),
        'cpu',
      );
      for (const name of Object.keys(rule) as (keyof RuleTensors)[]) this.#rule[name].copy_(rule[name]);
    });
  }

  #pass(): void {
    scope(() =>
      noGrad(() => {
        const part = (i: number) => this.#tokens.select(0, i);
        const tokens = { ids: part(0), positions: part(1), slots: part(2), targets: part(3) };
        const hidden = readTokens(this.#decoder, this.#cache, tokens, this.#responses.select(0, 0));
        const drawn = sampleNext(this.#decoder.logits(hidden), this.#rule, this.#responses.select(0, 1));
        for (const name of ['ids', 'logp', 'kept'] as const) this.#drawn[name].copy_(drawn[name]);
      }),
    );
  }

  dispose(): void {
    if (this.#graph !== null) synchronize(this.#decoder.device);
    this.#graph?.dispose();
    const own = [...Object.values(this.#rule), ...Object.values(this.#drawn), ...this.#tables];
    for (const each of [this.#tokens, this.#responses, ...own]) each.dispose();
  }
}
