/** Tokens a second of decoding alone: the time of many new tokens less that of few, the fastest of some rounds. */
import { type Model, type Precision, Sampler } from '../../src/models/index.ts';
import { synchronize } from '../../src/tensor/index.ts';
import { randomIds } from '../support/shapes.ts';

export interface DecodeWork {
  batch: number;
  tokens: number;
}

export const PROMPT = 8;
/** Tokens after which a sampler on a CPU has all the copies that it decodes with. */
const WARM = 140;

/** A program that decodes `tokens` of each sequence and says how many milliseconds it took. */
export type TimedDecoding = (tokens: number) => Promise<number>;

/** What one program takes for one work. Rounds of several programs can be taken in turn, so that a slow minute of the machine meets all. */
export class DecodeClock {
  readonly #work: DecodeWork;
  readonly #time: TimedDecoding;
  #short = Number.POSITIVE_INFINITY;
  #long = Number.POSITIVE_INFINITY;
  static readonly few = 2;

  constructor(work: DecodeWork, time: TimedDecoding) {
    this.#work = work;
    this.#time = time;
  }

  async warmUp(): Promise<void> {
    await this.#time(DecodeClock.few);
  }

  async round(): Promise<void> {
    this.#short = Math.min(this.#short, await this.#time(DecodeClock.few));
    this.#long = Math.min(this.#long, await this.#time(DecodeClock.few + this.#work.tokens));
  }

  /** NaN where few tokens took longer than many, as on a busy machine: that is no reading. */
  get tokensPerSecond(): number {
    const { batch, tokens } = this.#work;
    return this.#long > this.#short ? (batch * tokens * 1000) / (this.#long - this.#short) : Number.NaN;
  }
}

/** A sampler that has the copies it decodes with, for up to so many sequences of so many tokens. */
export async function warmSampler(
  model: Model,
  vocabulary: number,
  { batch, tokens }: DecodeWork,
  precision: Precision = 'exact',
): Promise<Sampler> {
  const onCpu = model.device === 'cpu';
  const maxLength = PROMPT + Math.max(onCpu ? WARM : 0, tokens + DecodeClock.few);
  const sampler = new Sampler(model, { slots: batch, precision, maxLength });
  if (onCpu) await sampler.generate(requests(1, WARM, vocabulary));
  return sampler;
}

/** `sampler`: has at least as many slots. */
export function ourDecoding(sampler: Sampler, model: Model, vocabulary: number, batch: number): TimedDecoding {
  return async (maxNewTokens) => {
    const start = performance.now();
    await sampler.generate(requests(batch, maxNewTokens, vocabulary));
    if (model.device !== 'cpu') synchronize();
    return performance.now() - start;
  };
}

const requests = (count: number, maxNewTokens: number, vocabulary: number) =>
  Array.from({ length: count }, (_, i) => ({
    prompt: randomIds(PROMPT, vocabulary, i),
    maxNewTokens,
    temperature: 0,
    seed: i,
  }));

export async function decodeRate(
  model: Model,
  vocabulary: number,
  { repeats, ...work }: DecodeWork & { repeats: number },
): Promise<number> {
  using sampler = await warmSampler(model, vocabulary, work);
  const clock = new DecodeClock(work, ourDecoding(sampler, model, vocabulary, work.batch));
  await clock.warmUp();
  for (let i = 0; i < repeats; i++) await clock.round();
  return clock.tokensPerSecond;
}
