/**
 * The only generation engine: rollouts, evaluation, chat and serving all use it. Finished sequences leave and waiting
 * ones enter at any step (continuous batching); a prompt is read once for all its samples. The cache's memory is
 * bounded and known before the start: sequences take blocks of it as they grow, share what they have in common, and
 * wait when there are no more. A response depends only on its seed and its prompt, not on the rest of the batch or on
 * when it was submitted: bit for bit in float32 on the CPU, to rounding on CUDA, where the kernels depend on the number
 * of rows.
 *
 *     using sampler = new Sampler(model);
 *     const [[response]] = await sampler.generate([{ prompt: ids, maxNewTokens: 64, temperature: 0 }]);
 *
 *     const submission = sampler.submit({ prompt: ids, maxNewTokens: 64 });   // at any time, while others run
 *     for await (const { id } of submission) …;
 *
 * The weights may change between requests (training). A request in flight while they change fails with
 * WeightsChangedError.
 */
import { UserError } from '../../errors.ts';
import type { Progress } from '../../progress.ts';
import { withoutDropout } from '../decoder/temporarily.ts';
import type { Model } from '../model.ts';
import type { Precision } from '../precision.ts';
import { Admission } from './admission.ts';
import type { CacheDtype, CacheSize } from './cache/cache.ts';
import { checkCacheBound, plannedCache, slotsFor } from './cache-plan.ts';
import { Engine } from './engine.ts';
import {
  type CacheUse,
  checkRequests,
  checkSamplerOptions,
  checkWaiting,
  type GenerateOptions,
  type GenerationRequest,
  type PromptCounts,
  type SampledResponse,
  SamplerDisposedError,
  type SamplerOptions,
  WeightsChangedError,
} from './request.ts';
import type { Row } from './row.ts';
import { type Submission, type SubmissionOptions, Submitted } from './submission.ts';

/** How long the sampler blocks the event loop at a time; less if a caller follows token by token. */
const PATIENCE_MS = 50;
const WATCHED_PATIENCE_MS = 5;
/** How long the sampler waits for requests that are just arriving. */
const GATHER_MS = 20;
/**
 * With few waiting prompts, a service reads them only after writing for twice as long as the last prompts took, but for
 * no longer than this.
 */
const MOST_WRITING_MS = 50;

/** Writes responses with a model, many at a time (continuous batching). Dispose it to free its cache. */
export class Sampler {
  readonly #model: Model;
  /** As given, and as the last `reserve` changed them. */
  readonly #given: SamplerOptions;
  #options: SamplerOptions;
  readonly #engine: Engine;
  readonly #admission: Admission;
  /** Submissions with rows in slots, and finished ones that are not settled yet. */
  #inFlight: Submitted[] = [];
  /** The state of the weights that the keys and values in flight were computed with, by adapter. */
  readonly #weights = new Map<string | null, string>();
  #running = false;
  /** The time from which a few waiting prompts may be read again. */
  #readAgain = 0;
  /** Requests admitted so far. */
  #entered = 0;
  /** A step is running: the cache is in use. */
  #bursting = false;
  #disposed = false;

  constructor(model: Model, options: SamplerOptions = {}) {
    if (model?.decoder === undefined) throw new UserError('A sampler needs a model, as loadModel gives it.');
    checkSamplerOptions(options);
    checkCacheBound(model.decoder, options);
    this.#model = model;
    this.#given = options;
    this.#options = options;
    this.#engine = new Engine(model, {
      service: options.reusePrefixes ?? false,
      fast: options.precision === 'fast',
      cacheDtype: this.cacheDtype,
    });
    this.#admission = new Admission(model, this.#engine, options.reusePrefixes ?? false);
  }

  /** The size of the cache that these requests would get: known, and bounded, before anything starts. */
  plan(requests: readonly GenerationRequest[]): CacheSize & { bytes: number } {
    if (this.#disposed) throw new SamplerDisposedError('This sampler was disposed: make another one.');
    const held = this.cacheBytes + this.#engine.weights.copyBytes; // both are freed before another cache is allocated
    return plannedCache(this.#model.decoder, this.#options, requests, held);
  }

  /**
   * Prepares the cache for this many responses of at most this many tokens, prompts included, and forgets finished
   * sequences (`reusePrefixes`). On a CPU no bit of later results then depends on earlier requests. Call it while
   * nothing is being written.
   */
  reserve({ responses, length }: { responses: number; length: number }): void {
    if (!this.#isIdle) throw new UserError('A sampler that is writing cannot be given another size.');
    const slots = slotsFor(this.#model.decoder, this.#given, responses, length);
    const options = { ...this.#given, slots, maxLength: length };
    checkSamplerOptions(options);
    this.#options = options;
    this.#engine.beginBatch(slots, length);
    this.#admission.forgetPrefixes();
  }

  get precision(): Precision {
    return this.#options.precision ?? 'exact';
  }
  get cacheDtype(): CacheDtype {
    return this.#options.cacheDtype ?? 'model';
  }
  /** How full the cache is, in blocks of 64 tokens, and how often a row was preempted so far. */
  get cacheUse(): CacheUse {
    const { cache } = this.#engine;
    const { usedBlocks, preemptions } = this.#admission;
    return { blocks: cache?.blocks ?? 0, used: cache === null ? 0 : usedBlocks, preemptions };
  }
  /** Bytes of the current cache. */
  get cacheBytes(): number {
    return this.#engine.cacheBytes;
  }
  /** Responses that wait for a slot. */
  get waiting(): number {
    return this.#admission.waiting;
  }
  get promptTokens(): PromptCounts {
    return this.#admission.promptTokens;
  }

  /** All responses, per request in the order of its samples. Concurrent calls share the slots in turn. */
  async generate(requests: readonly GenerationRequest[], options: GenerateOptions = {}): Promise<SampledResponse[][]> {
    checkRequests(requests, this.#model.decoder.spec.vocabSize);
    if (requests.length === 0) return [];
    this.plan(requests);
    const total = requests.reduce((sum, request) => sum + request.maxNewTokens * (request.samples ?? 1), 0);
    const client = Symbol('generate');
    let bar: ReturnType<Progress['start']> | undefined;
    const count = options.progress === undefined ? {} : { count: () => bar?.advance(1) };
    const submissions = requests.map((request) => this.#submitted(request, { signal: options.signal, ...count }));
    bar = options.progress?.start('sampling', total, 'tokens');
    for (const submission of submissions) this.#enter(submission.request.client ?? client, submission);
    try {
      return await Promise.all(submissions.map((submission) => submission.responses));
    } catch (error) {
      for (const submission of submissions) submission.cancel();
      throw error;
    } finally {
      bar?.done();
    }
  }

  /** Adds a request to those being written. Throws QueueFullError if too many are waiting already. */
  submit(request: GenerationRequest): Submission {
    checkRequests([request], this.#model.decoder.spec.vocabSize);
    this.plan([request]);
    this.checkQueue(request.samples ?? 1);
    const submission = this.#submitted(request, { watched: true });
    this.#enter(request.client, submission);
    return submission;
  }

  /** Throws QueueFullError if this many further responses may not wait now, and UserError if they never may. */
  checkQueue(responses: number): void {
    checkWaiting(responses, this.waiting, this.#options.maxWaiting);
  }

  #submitted(request: GenerationRequest, options: SubmissionOptions): Submitted {
    const { adapters } = this.#model;
    const { adapter = adapters?.active?.name ?? null } = request;
    if (adapter !== null && adapters === null)
      throw new UserError(`There is no adapter "${adapter}" on this model: it has none.`);
    if (adapter !== null) adapters?.get(adapter);
    return new Submitted(request, adapter, { tokenizer: this.#options.tokenizer, ...options });
  }

  #enter(client: unknown, submission: Submitted): void {
    this.#admission.enter(client, submission);
    this.#entered++;
    if (this.#running) return;
    this.#running = true;
    // requests submitted in the same turn of the event loop are read together
    queueMicrotask(() => void this.#run());
  }

  get #isIdle(): boolean {
    return this.#disposed || (this.#admission.isEmpty && this.#inFlight.length === 0);
  }

  async #run(): Promise<void> {
    while (!this.#isIdle) {
      this.#bursting = true;
      try {
        withoutDropout(this.#model.decoder, () => this.#burst());
      } catch (error) {
        for (const submission of [...this.#inFlight, ...this.#admission.submissions]) submission.fail(error);
        this.#admission.dropCancelled();
        this.#settle();
      }
      this.#bursting = false;
      if (!this.#isIdle) await this.#letOthersRun();
    }
    this.#running = false;
    this.#weights.clear();
    if (this.#disposed) this.#engine.dispose();
    else this.#engine.rest();
  }

  /**
   * Gives the event loop a turn, and further ones while they bring requests. A prompt costs less together with others
   * than alone, and Node accepts one connection per turn: with a step between two turns, the last of many clients would
   * wait for long.
   */
  async #letOthersRun(): Promise<void> {
    const end = performance.now() + GATHER_MS;
    const quietTurns = this.#isWatched ? 2 : 1; // a connection accepted in this turn brings its request in the next one
    for (let quiet = 0; quiet < quietTurns && performance.now() < end; ) {
      const before = this.#entered;
      await new Promise((resolve) => setImmediate(resolve));
      quiet = this.#entered === before ? quiet + 1 : 0;
    }
  }

  /** Whether somebody follows a request token by token. */
  get #isWatched(): boolean {
    return this.#inFlight.some(isWatched) || this.#admission.submissions.some(isWatched);
  }

  /**
   * Admits requests and takes steps until the event loop is due. Other code can change the weights only then. If tokens
   * are awaited, it does not wait for a step that the device is still busy with: the event loop runs meanwhile. First
   * tokens go out before a step that would delay them: on the CPU, and on a device that nobody else uses.
   */
  #burst(): void {
    this.#checkWeights();
    this.#checkAdapters();
    this.#admission.dropCancelled();
    const watched = this.#isWatched;
    const end = performance.now() + (watched ? WATCHED_PATIENCE_MS : PATIENCE_MS);
    do {
      this.#collect();
      this.#settle();
      const alone = this.#inFlight.length === 0 || this.#model.decoder.device === 'cpu';
      const began = this.#admit();
      this.#settle();
      if (watched && began && alone) return;
      // A step costs nearly the same for few rows as for many: if nobody follows, the other prompts are read first.
      if (!watched && began && !this.#admission.isEmpty) continue;
      this.#step(watched ? 0 : end - performance.now());
      this.#settle();
      if (watched && this.#engine.isBusy) return;
    } while (!this.#isIdle && performance.now() < end);
  }

  /** Takes in the tokens of the steps started earlier. Starts the next ones if no request is waiting. */
  #collect(): void {
    if (!this.#engine.isBusy) return;
    const goOn = this.#admission.isEmpty && !this.#inFlight.some((submission) => submission.cancelled);
    this.#guard(this.#inFlight, () => this.#engine.collect(goOn));
    // a callback may have submitted a request after the next steps were started
    if (!this.#admission.isEmpty) this.#guard(this.#inFlight, () => this.#engine.collect(false));
  }

  /** Fails the requests in flight whose weights have changed. */
  #checkWeights(): void {
    for (const [adapter, before] of this.#weights) {
      if (this.#inFlight.some((submission) => submission.adapter === adapter)) {
        if (this.#engine.weights.now(adapter) === before) continue;
        const message =
          "The model's weights changed while a response was being written: wait for the responses before training.";
        for (const submission of this.#inFlight)
          if (submission.adapter === adapter) submission.fail(new WeightsChangedError(message));
      }
      this.#weights.delete(adapter);
    }
    this.#settle();
  }

  /** Fails waiting requests whose adapter has been removed from the model. */
  #checkAdapters(): void {
    for (const submission of this.#admission.submissions) {
      const { adapter } = submission;
      if (adapter === null || this.#model.adapters?.names.includes(adapter)) continue;
      submission.fail(new UserError(`The adapter "${adapter}" was taken off the model while a request for it waited.`));
    }
  }

  /**
   * Whether waiting prompts are read now. One prompt costs nearly as much as several, and nothing is written meanwhile:
   * if responses are followed as they are written, a few waiting prompts are left to gather.
   */
  get #isTimeToRead(): boolean {
    if (!this.#inFlight.some(({ rows }) => rows.some(isActive))) return true;
    if (!this.#inFlight.some(isWatched) || this.waiting * 8 >= (this.#engine.cache?.slots ?? 0)) return true;
    return performance.now() >= this.#readAgain;
  }

  /** Reads waiting prompts if it is time to; returns whether responses have begun. */
  #admit(): boolean {
    if (this.#admission.isEmpty || !this.#isTimeToRead) return false;
    const started = performance.now();
    const began = this.#readWaiting();
    const now = performance.now();
    this.#readAgain = now + Math.min(MOST_WRITING_MS, 2 * (now - started));
    return began;
  }

  #readWaiting(): boolean {
    if (this.#inFlight.length === 0) this.#admission.makeRoom(this.plan(this.#admission.requests));
    const admitted = this.#admission.admit(this.#inFlight, (name) => this.#noteWeights(name));
    for (const { adapter, groups, submissions } of admitted) {
      for (const submission of submissions) if (!this.#inFlight.includes(submission)) this.#inFlight.push(submission);
      const more = !this.#isWatched && !this.#admission.isEmpty;
      const alone = admitted.length === 1 && this.#isAlone(adapter);
      this.#guard(submissions, () =>
        this.#engine.weights.withAdapter(adapter, () => this.#engine.readPrompts(groups, { more, alone })),
      );
    }
    return admitted.length > 0;
  }

  /** The state of an adapter's weights, recorded when its first row is admitted; it cannot change within a burst. */
  #noteWeights(adapter: string | null): string {
    const state = this.#weights.get(adapter) ?? this.#engine.weights.now(adapter);
    this.#weights.set(adapter, state);
    return state;
  }

  /** Gives the rows the blocks of their next tokens. A row may be preempted only while no started step writes to its blocks. */
  #reserve(): void {
    const { stepsAhead } = this.#engine;
    if (this.#admission.reserve(this.#inFlight, stepsAhead, !this.#engine.isBusy)) return;
    this.#guard(this.#inFlight, () => this.#engine.collect(false));
    this.#settle();
    this.#admission.reserve(this.#inFlight, stepsAhead, true);
  }

  /**
   * One token for every row in a slot, each adapter's rows together. If one adapter has the sampler to itself, further
   * tokens in the time left.
   */
  #step(left: number): void {
    this.#guard(this.#inFlight, () => this.#engine.takeFirstTokens());
    this.#settle();
    this.#reserve();
    const byAdapter = Map.groupBy(this.#inFlight, (submission) => submission.adapter);
    for (const [adapter, submissions] of byAdapter) {
      const rows = submissions.flatMap((submission) => submission.rows.filter(isActive));
      if (rows.length === 0) continue;
      const watched = submissions.some((submission) => submission.watched);
      const graphs = this.#isAlone(adapter); // with several adapters every step would capture a new graph
      const milliseconds = byAdapter.size === 1 ? left : 0;
      this.#guard(submissions, () =>
        this.#engine.weights.withAdapter(adapter, () => this.#engine.step(rows, { watched, graphs, milliseconds })),
      );
    }
  }

  /**
   * Whether all rows belong to this adapter, and it is the model's active one: then its matrices are merged and its
   * steps captured.
   */
  #isAlone(adapter: string | null): boolean {
    return (
      adapter === (this.#model.adapters?.active?.name ?? null) &&
      this.#inFlight.every((submission) => submission.adapter === adapter)
    );
  }

  /** Runs `body`; an error fails all of these submissions. */
  #guard(submissions: readonly Submitted[], body: () => void): void {
    try {
      body();
    } catch (error) {
      for (const submission of submissions) submission.fail(error);
    }
  }

  /** Removes finished, cancelled and failed submissions, frees their slots and settles their promises. */
  #settle(): void {
    for (const submission of this.#inFlight) {
      if (submission.cancelled) for (const row of submission.rows) row.finish ??= 'cancelled';
      for (const row of submission.rows) {
        if (row.slot < 0 || row.finish === null) continue;
        this.#admission.release(row, submission.settled ? null : (this.#weights.get(submission.adapter) ?? null));
      }
    }
    this.#inFlight = this.#inFlight.filter((submission) => {
      if (!submission.rows.every((row) => row.finish !== null)) return true;
      submission.settle();
      return false;
    });
  }

  /** Frees the cache. Requests that are not done fail with SamplerDisposedError. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    const error = new SamplerDisposedError('The sampler was disposed before this request was done.');
    for (const submission of [...this.#inFlight, ...this.#admission.submissions]) submission.fail(error);
    if (!this.#bursting) this.#engine.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** A sampler as a service: `submit` requests at any time. */
export function createSampler(model: Model, options: SamplerOptions = {}): Sampler {
  return new Sampler(model, options);
}

const isWatched = (submission: Submitted): boolean => submission.watched;
const isActive = (row: Row): boolean => row.slot >= 0 && row.finish === null;
