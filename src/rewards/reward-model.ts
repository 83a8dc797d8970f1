/**
 * A trained reward model as a scorer: preference score, probability of being right (ORM), or quality of the steps
 * (PRM).
 *
 *     using scorer = await loadRewardModel('./checkpoints/rm/run/final', { normalise: true });
 *     const [score] = await scorer.score([{ prompt: 'What is 2 + 2?', response: '4' }]);
 *
 * Scoring formats text as in training, according to the checkpoint's notes.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { atLeast, checkArguments, flag, limit, oneOf, type Rule, text } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { type ResolveOptions, resolveModel } from '../hub/hub.ts';
import { loadOptionNames, loadOptionsOf } from '../models/files/load.ts';
import { headOutputBatches, type LoadOptions, loadModel, type Model, type Precision } from '../models/index.ts';
import { precisions, scoresFast } from '../models/precision.ts';
import { Tokenizer } from '../text/index.ts';
import { type RewardNotes, type RewardType, rewardNotes } from './reward-notes.ts';
import { type ReadText, RewardReader } from './reward-reader.ts';
import { checkItems, type RewardItem, type RewardScorer, type ScoreOptions } from './scorer.ts';

/** The names of the step aggregations. */
export const stepAggregations = ['min', 'product', 'last'] as const;
/** How a process reward model's step scores become one number. */
export type StepAggregation = (typeof stepAggregations)[number];

/** How a reward model scores: normalisation, step aggregation, length limit. */
export interface RewardModelOptions {
  name?: string;
  steps?: StepAggregation;
  /** (score − mean) / std of the reference set. */
  normalise?: boolean;
  tokenBudget?: number;
  /**
   * Default `exact`. With `fast`, an H100 or H200 also rounds the inputs of matrix products to 8 bits in a model
   * quantised to 8 bits (docs/quantisation.md).
   */
  precision?: Precision;
  /** Prompts are truncated from the left so that a sequence fits. Default: the limit in training. */
  maxLength?: number;
}

/** Options of a reward model's call. */
export interface ModelScoreOptions extends ScoreOptions {
  /**
   * The most tokens in one forward pass, after which other work may run. Applies if the model has no `tokenBudget` of
   * its own. Long texts raise it to twice the longest.
   */
  tokenBudget?: number;
}

const scoreOptionNames: Record<keyof ModelScoreOptions, true> = { signal: true, onTruncated: true, tokenBudget: true };

const optionRules: Record<keyof RewardModelOptions, Rule> = {
  name: text,
  steps: oneOf(stepAggregations),
  normalise: flag,
  tokenBudget: atLeast(1),
  precision: oneOf(precisions),
  maxLength: limit(1),
};

/** The default name of a reward model among several rewards. */
export const rewardModelName = 'reward_model';

/** A trained reward model as a scorer. */
export class RewardModelScorer implements RewardScorer {
  readonly name: string;
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  readonly notes: RewardNotes;
  /** The most tokens of prompt and response that it reads. Of a longer text it reads the last ones. */
  readonly maxLength: number;
  readonly #options: RewardModelOptions;
  readonly #reader: RewardReader;

  constructor(model: Model, tokenizer: Tokenizer, options: RewardModelOptions & { notes?: RewardNotes } = {}) {
    checkArguments('A reward model', options, optionRules);
    this.notes = options.notes ?? rewardNotes(model, model.folder ?? 'this model');
    this.name = options.name ?? rewardModelName;
    this.model = model;
    this.tokenizer = tokenizer;
    this.#options = options;
    const { pad_token_id: pad } = model.config;
    this.maxLength = Math.min(options.maxLength ?? this.notes.maxLength, model.decoder.spec.maxPositions);
    this.#reader = new RewardReader(tokenizer, this.notes, {
      maxLength: this.maxLength,
      ...(typeof pad === 'number' ? { padId: pad } : {}),
    });
    if (options.steps !== undefined && this.notes.type !== 'process')
      throw new UserError(
        `--steps ${options.steps}: a model of type ${this.notes.type} scores whole responses, not their steps.`,
      );
    if (options.normalise && !(this.notes.std > 0)) {
      throw new UserError(
        `${model.folder ?? 'This model'} holds no spread of its scores on a reference set, so they cannot be normalised.`,
      );
    }
  }

  /** The precision of its scores: `fast` if that was requested and this device supports it. */
  get precision(): Precision {
    return this.#options.precision === 'fast' && scoresFast(this.model) ? 'fast' : 'exact';
  }

  async score(items: readonly RewardItem[], options: ModelScoreOptions = {}): Promise<number[]> {
    checkNames('score', options, Object.keys(scoreOptionNames));
    const scores = await this.#scores(items, options);
    if (!this.#options.normalise) return scores;
    const { mean, std } = this.notes;
    return scores.map((score) => (score - mean) / std);
  }

  /** P(+1) of each step of each response, for PRMs. */
  async stepScores(items: readonly RewardItem[], options: ScoreOptions = {}): Promise<number[][]> {
    return (await this.stepLogits(items, options)).map(stepProbabilities);
  }

  /** The logits of −1, 0 and +1 of one step after another, for PRMs. */
  async stepLogits(items: readonly RewardItem[], options: ScoreOptions = {}): Promise<Float32Array[]> {
    if (this.notes.type !== 'process')
      throw new UserError(`A model of type ${this.notes.type} scores whole responses, not their steps.`);
    return this.#outputs(items, options);
  }

  async #scores(items: readonly RewardItem[], options: ModelScoreOptions): Promise<number[]> {
    const outputs = await this.#outputs(items, options);
    return outputs.map((output) => scoreOf(this.notes.type, output, this.#options.steps));
  }

  async #outputs(items: readonly RewardItem[], options: ModelScoreOptions): Promise<Float32Array[]> {
    checkItems(items);
    const { signal, onTruncated } = options;
    const sequences = await this.#reader.sequences(items);
    if (onTruncated !== undefined)
      for (const [i, item] of items.entries()) if (sequences[i]?.truncated) onTruncated(item);
    const outputs: Float32Array[] = [];
    const { precision } = this.#options;
    for (let start = 0; start < sequences.length; start += 64) {
      const some = sequences.slice(start, start + 64);
      const tokenBudget = this.#options.tokenBudget ?? budgetFor(some, options);
      signal?.throwIfAborted();
      // Batch by batch, so that other work can run in between and a long list can be aborted.
      for (const batch of headOutputBatches(this.model, some, { tokenBudget, precision })) {
        outputs.push(...batch);
        await turn();
        signal?.throwIfAborted();
      }
    }
    return outputs;
  }

  dispose(): void {
    this.model.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The score of a response from the head's outputs. */
export function scoreOf(type: RewardType, outputs: Float32Array, steps: StepAggregation = 'min'): number {
  if (type === 'process') return aggregateSteps(stepProbabilities(outputs), steps);
  const [output = 0] = outputs;
  return type === 'outcome' ? 1 / (1 + Math.exp(-output)) : output;
}

function stepProbabilities(logits: Float32Array): number[] {
  return Array.from({ length: logits.length / 3 }, (_, i) => rightProbability(logits.subarray(3 * i, 3 * i + 3)));
}

function rightProbability(logits: Float32Array): number {
  const [wrong = 0, neutral = 0, right = 0] = logits;
  const top = Math.max(wrong, neutral, right);
  const exps = [wrong, neutral, right].map((logit) => Math.exp(logit - top));
  return (exps[2] as number) / exps.reduce((sum, value) => sum + value, 0);
}

/** Combines the scores of a response's steps into one number. */
export function aggregateSteps(steps: readonly number[], how: StepAggregation = 'min'): number {
  if (how === 'product') return steps.reduce((product, value) => product * value, 1);
  return how === 'last' ? (steps.at(-1) ?? 0) : steps.reduce((least, value) => Math.min(least, value), 1);
}

/** Options of `loadRewardModel`: where and how the model is loaded, and how it scores. */
export type LoadRewardOptions = LoadOptions & ResolveOptions & RewardModelOptions & { type?: RewardType };

/** Loads a reward model from a folder or the hub. Refuses a model without a trained score head. */
export async function loadRewardModel(name: string, options: LoadRewardOptions = {}): Promise<RewardModelScorer> {
  checkNames('loadRewardModel', options, [...loadOptionNames, ...Object.keys(optionRules), 'type']);
  const loading = loadOptionsOf(options);
  const folder = await resolveModel(name, loading);
  const model = await loadModel(folder, loading);
  try {
    const notes = rewardNotes(model, name, adapterTask(folder));
    const { type } = notes;
    if (options.type !== undefined && options.type !== type)
      throw new UserError(`${name} is a reward model of type ${type}; one of type ${options.type} is wanted here.`);
    // An adapter's folder may have no tokenizer. Then its base model's is used.
    const own = existsSync(join(folder, 'tokenizer.json')) ? folder : (model.folder ?? folder);
    const tokenizer = await Tokenizer.load(own);
    if (tokenizer.vocabSize > model.decoder.spec.vocabSize) {
      throw new UserError(
        `${name}: its tokenizer has ${tokenizer.vocabSize} tokens, the model only ${model.decoder.spec.vocabSize}.`,
      );
    }
    return new RewardModelScorer(model, tokenizer, { ...options, notes });
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/** The `task_type` in an adapter's folder. */
function adapterTask(folder: string): string | undefined {
  const path = join(folder, 'adapter_config.json');
  if (!existsSync(path)) return undefined;
  return (JSON.parse(readFileSync(path, 'utf8')) as { task_type?: string | null }).task_type ?? undefined;
}

/**
 * The budget grows to hold a long text. Twice its length lets responses to one long prompt share the prompt, instead of
 * reading it again for each.
 */
function budgetFor(texts: readonly ReadText[], { tokenBudget }: ModelScoreOptions): number | undefined {
  return tokenBudget && texts.reduce((most, { ids }) => Math.max(most, 2 * ids.length), tokenBudget);
}
