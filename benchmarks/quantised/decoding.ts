/** Tokens a second of decoding alone: the time of many new tokens less that of few, the fastest of some repeats. */
import { type Model, Sampler } from '../../src/models/index.ts';
import { synchronize } from '../../src/tensor/index.ts';
import { randomIds } from '../shapes.ts';

export interface DecodeWork {
  batch: number;
  tokens: number;
  repeats: number;
}

export const PROMPT = 8;

export async function decodeRate(
  model: Model,
  vocabulary: number,
  { batch, tokens, repeats }: DecodeWork,
): Promise<number> {
  using sampler = new Sampler(model, { slots: batch });
  const time = async (maxNewTokens: number) => {
    const start = performance.now();
    await sampler.generate(
      Array.from({ length: batch }, (_, i) => ({
        prompt: randomIds(PROMPT, vocabulary, i),
        maxNewTokens,
        temperature: 0,
        seed: i,
      })),
    );
    if (model.device !== 'cpu') synchronize();
    return performance.now() - start;
  };
  return await rateOf(time, { batch, tokens, repeats });
}

/** The rate of a program that takes `time(n)` milliseconds for n tokens of each sequence. */
export async function rateOf(
  time: (tokens: number) => Promise<number>,
  { batch, tokens, repeats }: DecodeWork,
): Promise<number> {
  const few = 2;
  await time(few);
  let [short, long] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let i = 0; i < repeats; i++) {
    short = Math.min(short, await time(few));
    long = Math.min(long, await time(few + tokens));
  }
  // On a busy machine a few tokens can take longer than many: that is no reading.
  return long > short ? (batch * tokens * 1000) / (long - short) : Number.NaN;
}
