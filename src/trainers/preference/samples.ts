/**
 * Samples the policy's responses to a few prompts during training, and writes them to `samples.jsonl` and TensorBoard.
 * The step alone decides which prompts, so a resumed run shows the same ones.
 */
import { appendFileSync } from 'node:fs';
import { type Model, Sampler } from '../../models/index.ts';
import { Random } from '../../random.ts';
import type { Run } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { captureRng, restoreRng } from '../loop/state.ts';

export interface Sample {
  step: number;
  prompt: string;
  response: string;
  /** Ended by itself instead of being cut off at the token limit. */
  ended: boolean;
}

export type SampleOrder = 'fixed' | 'round-robin' | 'random';

export interface SampleOptions {
  every: number;
  count: number;
  order: SampleOrder;
  maxNewTokens: number;
  temperature: number;
  seed: number;
}

const samplesFile = 'samples.jsonl';

/** The places, among `total` prompts, of those sampled the n-th time. */
function samplePlaces(order: SampleOrder, n: number, count: number, total: number, seed: number): number[] {
  const shown = Math.min(count, total);
  const first = Array.from({ length: shown }, (_, i) => i);
  const orders: Record<SampleOrder, () => number[]> = {
    fixed: () => first,
    'round-robin': () => first.map((i) => (n * shown + i) % total),
    random: () => Array.from(new Random(seed, n).permutation(total).subarray(0, shown)),
  };
  return orders[order]();
}

export class SampleResponses {
  readonly #model: Model;
  readonly #tokenizer: Tokenizer;
  readonly #prompts: readonly Int32Array[];
  readonly #options: SampleOptions;

  constructor(model: Model, tokenizer: Tokenizer, prompts: readonly Int32Array[], options: SampleOptions) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#prompts = prompts;
    this.#options = options;
  }

  isDue(step: number): boolean {
    return this.#options.every > 0 && step % this.#options.every === 0 && this.#prompts.length > 0;
  }

  /** Restores the random generators, because sampling must not change the training. */
  async take(step: number, run: Run, signal?: AbortSignal): Promise<Sample[]> {
    const { every, count, order, maxNewTokens, temperature, seed } = this.#options;
    const places = samplePlaces(order, step / every - 1, count, this.#prompts.length, seed);
    const prompts = places.map((place) => this.#prompts[place] as Int32Array);
    const requests = prompts.map((prompt, i) => ({
      prompt,
      maxNewTokens,
      temperature,
      stopIds: this.#tokenizer.eosIds,
      seed: seed + i,
    }));
    const rng = captureRng([...this.#model.parameters()].map(([, parameter]) => parameter));
    const wasTraining = this.#model.decoder.training;
    this.#model.train(false);
    const sampler = new Sampler(this.#model, { slots: count });
    try {
      const responses = await sampler.generate(requests, { signal });
      const samples = responses.map(([response], i): Sample => {
        const { ids = [], finish } = response ?? {};
        return {
          step,
          prompt: this.#tokenizer.decode(prompts[i] as Int32Array),
          response: this.#tokenizer.decode(ids, { skipSpecialTokens: true }),
          ended: finish === 'stop',
        };
      });
      appendFileSync(run.path(samplesFile), samples.map((sample) => `${JSON.stringify(sample)}\n`).join(''));
      run.metrics.text(
        step,
        'samples',
        samples.map(({ prompt, response }) => `${prompt}**${response}**`).join('\n\n---\n\n'),
      );
      return samples;
    } finally {
      sampler.dispose();
      this.#model.train(wasTraining);
      restoreRng(rng);
    }
  }
}
