/** Evaluates all methods of a comparison on the same held-out prompts, with the same scorer and seeds. */
import { UserError } from '../../errors.ts';
import { type Model, Sampler } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { evaluatePrompts, measureKl } from '../../rollouts/evaluation.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import { promptLabel } from '../../rollouts/records.ts';
import { rolloutSeeds } from '../../rollouts/rollout.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { CompareConfig } from './config.ts';

export interface Judgement {
  step: number;
  /** `reward`, `accuracy`, `pass_at_k`, `length_mean`, `ended`. */
  metrics: Record<string, number>;
  /** Σ_t log π − log π of the starting model, averaged over sampled responses. */
  kl: number;
}

export interface JudgedResponse {
  prompt: string;
  text: string;
  reward: number;
}

export class Judge {
  responses: JudgedResponse[] = [];
  readonly #config: CompareConfig;
  readonly #start: Model;
  readonly #tokenizer: Tokenizer;
  readonly #scorer: RewardScorer;
  readonly #prompts: readonly PolicyPrompt[];

  constructor(
    config: CompareConfig,
    start: Model,
    tokenizer: Tokenizer,
    scorer: RewardScorer,
    prompts: readonly PolicyPrompt[],
  ) {
    if (prompts.length === 0) throw new UserError('There are no held-out prompts to judge the methods on.');
    this.#config = config;
    this.#start = start;
    this.#tokenizer = tokenizer;
    this.#scorer = scorer;
    this.#prompts = prompts;
  }

  async judge(model: Model, step: number): Promise<Judgement> {
    const { evalSamples: samples, maxNewTokens, temperature, microBatchTokens } = this.#config;
    using sampler = new Sampler(model, { tokenizer: this.#tokenizer });
    const options = { samples, maxNewTokens, temperature, seeds: rolloutSeeds(1, 'evaluation') };
    const { metrics, greedy, sampled } = await evaluatePrompts(
      sampler,
      this.#tokenizer,
      this.#scorer,
      this.#prompts,
      options,
    );
    const written = sampled.length > 0 ? sampled : greedy;
    const { perResponse: kl } = await measureKl(model, this.#start, written, { temperature, microBatchTokens });
    this.responses = greedy
      .slice(0, 6)
      .map(({ prompt, response, score }) => ({ prompt: promptLabel(prompt), text: response, reward: score }));
    return { step, metrics, kl };
  }
}
