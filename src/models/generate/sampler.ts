/**
 * The one generation engine: rollouts, evaluation, chat and serving all use it. Sequences sit in the slots of a cache; those
 * that are done leave and waiting ones enter (continuous batching); a prompt is read once for all its samples.
 *
 *     using sampler = new Sampler(model);
 *     const [[reply]] = await sampler.generate([{ prompt: ids, maxNewTokens: 64, temperature: 0 }]);
 */
import { UserError } from '../../errors.ts';
import type { Progress } from '../../progress.ts';
import { noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { Model } from '../model.ts';
import { type CacheSize, cacheBytes, KvCache } from './cache.ts';
import { CpuStep } from './cpu-step.ts';
import { decode, prefill } from './decoding.ts';
import { GraphDecoder } from './graph.ts';
import { type Generation, type GenerationRequest, Reply } from './request.ts';
import { type HeldRows, RowTensors } from './row-tensors.ts';
import { type Drawn, penalise, type RuleTensors, ruleTensors, sampleNext } from './sampling.ts';

export interface SamplerOptions {
  /** Sequences that are written at the same time. */
  slots?: number;
  /** Tokens per sequence, prompt included; by default what the requests need. */
  maxLength?: number;
  /** For stop strings and the replies' text. */
  tokenizer?: Tokenizer;
}

export interface GenerateOptions {
  signal?: AbortSignal;
  progress?: Progress;
}

const DEFAULT_SLOTS = 128;
/** On the CPU, whose weights are read once for all slots but whose memory is the machine's: fewer where their cache is larger than this. */
const CPU_CACHE_BYTES = 256 * 2 ** 20;
const CPU_SLOTS = 32;
/** Prompt tokens that go through at once: bounds the memory of prefill. */
const PREFILL_TOKENS = 16384;
const PATIENCE_MS = 25;

export class Sampler {
  readonly #model: Model;
  readonly #options: SamplerOptions;
  #cache: KvCache | null = null;
  #graph: GraphDecoder | null = null;

  constructor(model: Model, options: SamplerOptions = {}) {
    if (options.slots !== undefined && !(options.slots >= 1))
      throw new UserError(`slots ${options.slots}: expected 1 or more.`);
    this.#model = model;
    this.#options = options;
  }

  /** The cache that these requests would be given: known, and bounded, before anything starts. */
  plan(requests: readonly GenerationRequest[]): CacheSize & { bytes: number } {
    const { decoder } = this.#model;
    const needed = Math.max(1, ...requests.map((request) => request.prompt.length + request.maxNewTokens));
    const replies = requests.reduce((sum, request) => sum + (request.samples ?? 1), 0);
    const length = this.#options.maxLength ?? Math.ceil(needed / 64) * 64;
    const slots = this.#options.slots ?? Math.max(1, Math.min(this.#mostSlots(length), replies));
    if (needed > length) {
      throw new UserError(
        `A prompt with its new tokens needs ${needed} places; this sampler has ${length} (maxLength).`,
      );
    }
    if (requests.some((request) => request.prompt.length === 0))
      throw new UserError('A prompt needs at least one token.');
    decoder.checkLength(needed);
    return { slots, length, bytes: cacheBytes(decoder.spec, { slots, length }, decoder.dtype) };
  }

  #mostSlots(length: number): number {
    const { spec, dtype, device } = this.#model.decoder;
    if (device !== 'cpu') return DEFAULT_SLOTS;
    const affordable = Math.floor(CPU_CACHE_BYTES / cacheBytes(spec, { slots: 1, length }, dtype));
    return Math.min(DEFAULT_SLOTS, Math.max(CPU_SLOTS, affordable));
  }

  /** Bytes of the cache as it stands. */
  get cacheBytes(): number {
    const { spec, dtype } = this.#model.decoder;
    return this.#cache === null ? 0 : cacheBytes(spec, this.#cache, dtype);
  }

  /** All replies, per request in the order of their samples. */
  async generate(requests: readonly GenerationRequest[], options: GenerateOptions = {}): Promise<Generation[][]> {
    const replies = requests.map((request) =>
      Array.from({ length: request.samples ?? 1 }, (_, i) => new Reply(request, i, this.#options.tokenizer)),
    );
    if (requests.length === 0) return [];
    const cache = this.#cacheFor(this.plan(requests));
    const total = requests.reduce((sum, request) => sum + request.maxNewTokens * (request.samples ?? 1), 0);
    const bar = options.progress?.start('sampling', total, 'tokens');
    await this.#run(cache, replies, options, (tokens) => bar?.advance(tokens));
    bar?.done();
    return replies.map((group) => group.map((reply) => reply.result()));
  }

  #cacheFor(size: CacheSize): KvCache {
    if (this.#cache !== null && this.#cache.slots >= size.slots && this.#cache.length >= size.length)
      return this.#cache;
    this.#release();
    const { spec, dtype, device } = this.#model.decoder;
    this.#cache = new KvCache(spec, size, { dtype, device });
    return this.#cache;
  }

  async #run(
    cache: KvCache,
    groups: Reply[][],
    options: GenerateOptions,
    count: (tokens: number) => void,
  ): Promise<void> {
    const waiting = groups.map((group) => [...group]);
    const free = Array.from({ length: cache.slots }, (_, i) => cache.slots - 1 - i);
    let active: Reply[] = [];
    const graph = this.#graphFor(cache, groups);
    const wasTraining = this.#model.decoder.training;
    this.#model.decoder.train(false);
    using rows = new RowTensors(this.#model.decoder.device);
    using short = new CpuStep(this.#model.decoder, cache);
    let breath = performance.now();
    try {
      while (waiting.length > 0 || active.length > 0) {
        const admitted = this.#admit(cache, waiting, free);
        count(admitted.length);
        active = this.#settle([...active, ...admitted], free, options, waiting);
        if (active.length > 0) {
          const before = active.reduce((sum, reply) => sum + reply.ids.length, 0);
          if (graph === null) this.#step(cache, active, rows.of(active), short);
          else graph.run(active);
          count(active.reduce((sum, reply) => sum + reply.ids.length, 0) - before);
        }
        active = this.#settle(active, free, options, waiting);
        if (performance.now() - breath > PATIENCE_MS) {
          await new Promise((resolve) => setImmediate(resolve));
          breath = performance.now();
        }
      }
    } finally {
      this.#model.decoder.train(wasTraining);
    }
  }

  /** A captured graph where the device is CUDA and nothing needs the host between two tokens. */
  #graphFor(cache: KvCache, groups: Reply[][]): GraphDecoder | null {
    const { decoder } = this.#model;
    const plain = groups.every((group) => group.every((reply) => reply.rule.repetitionPenalty === 1));
    if (!decoder.device.startsWith('cuda') || !plain) return null;
    // adapters that were put on, taken off or merged since are another graph
    if (this.#graph !== null && this.#graph.arrangement !== decoder.arrangement) {
      this.#graph.dispose();
      this.#graph = null;
    }
    this.#graph ??= new GraphDecoder(decoder, cache);
    return this.#graph;
  }

  /** Fills free slots: whole groups where they fit, so that a prompt is read once; a group larger than all slots in portions. */
  #admit(cache: KvCache, waiting: Reply[][], free: number[]): Reply[] {
    const items: Reply[][] = [];
    let tokens = 0;
    while (waiting.length > 0 && free.length > 0) {
      const group = waiting[0] as Reply[];
      const fits = group.length <= free.length;
      if (!fits && group.length <= cache.slots) break;
      const length = (group[0] as Reply).promptLength;
      if (tokens > 0 && tokens + length > PREFILL_TOKENS) break;
      const part = group.splice(0, free.length);
      if (group.length === 0) waiting.shift();
      for (const reply of part) reply.slot = free.pop() as number;
      items.push(part);
      tokens += length;
    }
    if (items.length > 0) this.#prefill(cache, items);
    return items.flat();
  }

  #prefill(cache: KvCache, items: Reply[][]): void {
    const { decoder } = this.#model;
    const replies = items.flat();
    const drawn = scope(() =>
      noGrad(() => {
        const prompts = items.map((group) => ({
          prompt: (group[0] as Reply).request.prompt,
          slots: group.map((reply) => reply.slot),
        }));
        const hidden = prefill(decoder, cache, prompts);
        const rows = tensor(BigInt64Array.from(items.flatMap((group, i) => group.map(() => BigInt(i)))), {
          device: decoder.device,
        });
        const rule = ruleTensors(
          replies.map((reply) => reply.rule),
          replies.map((reply) => reply.seed),
          decoder.device,
        );
        // a token's counter is the place it will have, so that a seed gives it the same number anywhere
        const counters = tensor(
          BigInt64Array.from(replies, (reply) => BigInt(reply.position + 1)),
          { device: decoder.device },
        );
        return this.#draw(decoder.logits(hidden).indexSelect(0, rows), replies, rule, counters);
      }),
    );
    replies.forEach((reply, i) => {
      reply.push(drawn.ids[i] as number, drawn.logprobs[i] as number);
    });
  }

  /** One token for every active reply. */
  #step(cache: KvCache, active: readonly Reply[], rows: HeldRows, short: CpuStep): void {
    const drawn = short.run(active, rows) ?? this.#generalStep(cache, active, rows);
    active.forEach((reply, i) => {
      reply.push(drawn.ids[i] as number, drawn.logprobs[i] as number);
    });
  }

  #generalStep(cache: KvCache, active: readonly Reply[], { rule, slots }: HeldRows): Drawn {
    const { decoder } = this.#model;
    const whole = (pick: (reply: Reply) => number) =>
      tensor(
        BigInt64Array.from(active, (reply) => BigInt(pick(reply))),
        { device: decoder.device },
      );
    return scope(() =>
      noGrad(() => {
        const positions = whole((reply) => reply.position);
        const ids = whole((reply) => reply.last);
        const hidden = decode(decoder, cache, ids, positions, slots);
        return this.#draw(decoder.logits(hidden), active, rule, positions.add(1));
      }),
    );
  }

  /** The next token of each reply. */
  #draw(logits: Tensor, replies: readonly Reply[], rule: RuleTensors, counters: Tensor): Drawn {
    const wide = this.#model.decoder.dtype === 'float32' ? logits : logits.to('float32');
    replies.forEach((reply, i) => {
      const { repetitionPenalty } = reply.rule;
      if (repetitionPenalty === 1) return;
      penalise(wide.select(0, i), new Set([...Array.from(reply.request.prompt), ...reply.ids]), repetitionPenalty);
    });
    const { ids, logp } = sampleNext(wide, rule, counters);
    return { ids: ids.numbers(), logprobs: logp.numbers() };
  }

  /** Takes out what is finished or cancelled and frees its slots. */
  #settle(active: Reply[], free: number[], options: GenerateOptions, waiting: Reply[][]): Reply[] {
    if (options.signal?.aborted) {
      for (const reply of active) reply.finish ??= 'cancelled';
      waiting.length = 0;
    }
    return active.filter((reply) => {
      if (reply.request.signal?.aborted) reply.finish ??= 'cancelled';
      if (reply.finish === null) return true;
      free.push(reply.slot);
      return false;
    });
  }

  #release(): void {
    this.#graph?.dispose();
    this.#cache?.dispose();
    this.#graph = null;
    this.#cache = null;
  }

  dispose(): void {
    this.#release();
  }
  [Symbol.dispose](): void {
    this.#release();
  }
}
