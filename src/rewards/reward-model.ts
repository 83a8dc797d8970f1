/**
 * A trained reward model as a scorer: preference score, chance of being right (ORM), or quality of the steps (PRM).
 *
 *     using scorer = await loadRewardModel('./checkpoints/rm/run/final', { normalise: true });
 *     const [score] = await scorer.score([{ prompt: 'What is 2 + 2?', response: '4' }]);
 *
 * How the text was read in training is in the checkpoint's notes, so that scoring reads it in the same way.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { UserError } from '../errors.ts';
import { type ResolveOptions, resolveModel } from '../hub/hub.ts';
import {
  type HeadKind,
  headOutputs,
  type LoadOptions,
  loadModel,
  type Model,
  type ScoredSequence,
} from '../models/index.ts';
import { ChatFormat, type PromptFormat, stripThinking, Tokenizer } from '../text/index.ts';
import { promptMessages, type RewardItem, type RewardScorer, type ScoreOptions } from './scorer.ts';

export const rewardTypes = ['preference', 'outcome', 'process'] as const;
export type RewardType = (typeof rewardTypes)[number];

/** The head that each type trains. */
export const rewardHeads: Record<RewardType, { kind: HeadKind; outputs: number }> = {
  preference: { kind: 'reward', outputs: 1 },
  outcome: { kind: 'value', outputs: 1 },
  process: { kind: 'classes', outputs: 3 },
};

/** What training leaves in config.json under `attune.reward`. */
export interface RewardNotes {
  type: RewardType;
  /** Optimiser steps that the head has had. */
  step: number;
  stripThinking: boolean;
  format: PromptFormat;
  stepSeparator: string;
  maxLength: number;
  /** Of the scores on held-out responses. */
  mean: number;
  std: number;
  count: number;
}

/** How a PRM's step scores P(+1) become one number. */
export const stepAggregations = ['min', 'product', 'last'] as const;
export type StepAggregation = (typeof stepAggregations)[number];

export interface RewardModelOptions {
  name?: string;
  steps?: StepAggregation;
  /** (score − mean) / std of the reference set. */
  normalise?: boolean;
  tokenBudget?: number;
  /** Prompts are cut from their beginning so that a sequence fits; the training's limit unless given. */
  maxLength?: number;
}

export class RewardModelScorer implements RewardScorer {
  readonly name: string;
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  readonly notes: RewardNotes;
  readonly #options: RewardModelOptions;
  readonly #format: ChatFormat;

  constructor(model: Model, tokenizer: Tokenizer, options: RewardModelOptions = {}) {
    this.notes = rewardNotes(model, model.folder ?? 'this model');
    this.name = options.name ?? 'reward_model';
    this.model = model;
    this.tokenizer = tokenizer;
    this.#options = options;
    this.#format = new ChatFormat(tokenizer, { format: this.notes.format });
    if (options.normalise && !(this.notes.std > 0)) {
      throw new UserError(
        `${model.folder ?? 'This model'} holds no spread of its scores on a reference set, so they cannot be normalised.`,
      );
    }
  }

  async score(items: readonly RewardItem[], options: ScoreOptions = {}): Promise<number[]> {
    const scores = await this.#scores(items, options);
    if (!this.#options.normalise) return scores;
    const { mean, std } = this.notes;
    return scores.map((score) => (score - mean) / std);
  }

  /** P(+1) of each step of each response; a PRM only. */
  async stepScores(items: readonly RewardItem[], options: ScoreOptions = {}): Promise<number[][]> {
    return (await this.stepLogits(items, options)).map(stepProbabilities);
  }

  /** The logits of −1, 0 and +1 at each step, one step after another; a PRM only. */
  async stepLogits(items: readonly RewardItem[], options: ScoreOptions = {}): Promise<Float32Array[]> {
    if (this.notes.type !== 'process')
      throw new UserError(`A model of type ${this.notes.type} scores whole responses, not their steps.`);
    return this.#outputs(items, options);
  }

  async #scores(items: readonly RewardItem[], options: ScoreOptions): Promise<number[]> {
    const outputs = await this.#outputs(items, options);
    return outputs.map((output) => scoreOf(this.notes.type, output, this.#options.steps));
  }

  async #outputs(items: readonly RewardItem[], { signal }: ScoreOptions): Promise<Float32Array[]> {
    const sequences = await this.#sequences(items);
    const outputs: Float32Array[] = [];
    const { tokenBudget } = this.#options;
    // In parts, so that a long list leaves room for other work and can be stopped.
    for (let start = 0; start < sequences.length; start += 64) {
      signal?.throwIfAborted();
      outputs.push(...headOutputs(this.model, sequences.slice(start, start + 64), { tokenBudget }));
      await turn();
    }
    return outputs;
  }

  /** Prompts and replies are tokenised apart, exactly as the training data were. */
  async #sequences(items: readonly RewardItem[]): Promise<ScoredSequence[]> {
    const process = this.notes.type === 'process';
    const drafts = items.map((item) => {
      const messages = promptMessages(item.prompt);
      const prompt = this.#format.prompt(messages);
      const response = this.notes.stripThinking ? stripThinking(item.response) : item.response;
      return {
        prompt,
        replies: process ? this.#steps(item.steps ?? response) : [this.#format.reply(messages, prompt, response)],
      };
    });
    const ids = await this.tokenizer.encodeBatch(drafts.flatMap(({ prompt, replies }) => [prompt, ...replies]));
    let at = 0;
    return drafts.map(({ replies }) => {
      const prompt = ids[at++] as Int32Array;
      const parts = ids.slice(at, at + replies.length);
      at += replies.length;
      const closed = process ? parts : parts.map((part) => this.#format.closed(part));
      return this.#joined(prompt, closed);
    });
  }

  #steps(response: string | readonly string[]): string[] {
    const { stepSeparator } = this.notes;
    const steps =
      typeof response === 'string' ? response.split(stepSeparator).filter((step) => step.trim() !== '') : response;
    return (steps.length > 0 ? steps : ['']).map((step, index) => this.#format.step(step, index, stepSeparator));
  }

  #joined(prompt: Int32Array, replies: Int32Array[]): ScoredSequence {
    const { bos } = this.#format;
    const replyTokens = replies.reduce((sum, reply) => sum + reply.length, 0);
    const limit = this.#options.maxLength ?? this.notes.maxLength;
    const room = Math.max(0, limit - bos.length - replyTokens);
    const start = [...bos, ...(prompt.length > room ? prompt.subarray(prompt.length - room) : prompt)];
    const ids = [...start];
    const places: number[] = [];
    for (const reply of replies) {
      ids.push(...reply);
      if (reply.length > 0) places.push(ids.length - 1);
    }
    // A process model's own places are the ends of steps; every other model speaks at the last token.
    return { ids, places: places.length > 0 ? places : [ids.length - 1] };
  }

  dispose(): void {
    this.model.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The score of a response from what the head says of it. */
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

export function aggregateSteps(steps: readonly number[], how: StepAggregation = 'min'): number {
  if (how === 'product') return steps.reduce((product, value) => product * value, 1);
  return how === 'last' ? (steps.at(-1) ?? 0) : steps.reduce((least, value) => Math.min(least, value), 1);
}

export type LoadRewardOptions = LoadOptions & ResolveOptions & RewardModelOptions & { type?: RewardType };

/** From a folder or the hub. A model that was never trained to score is refused. */
export async function loadRewardModel(name: string, options: LoadRewardOptions = {}): Promise<RewardModelScorer> {
  const folder = await resolveModel(name, options);
  const model = await loadModel(folder, options);
  try {
    const { type } = rewardNotes(model, name);
    if (options.type !== undefined && options.type !== type)
      throw new UserError(`${name} is a reward model of type ${type}; one of type ${options.type} is wanted here.`);
    const tokenizer = await Tokenizer.load(folder);
    if (tokenizer.vocabSize > model.decoder.spec.vocabSize) {
      throw new UserError(
        `${name}: its tokenizer has ${tokenizer.vocabSize} tokens, the model only ${model.decoder.spec.vocabSize}.`,
      );
    }
    return new RewardModelScorer(model, tokenizer, options);
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/** What a checkpoint says of itself as a reward model; a UserError where it is none. */
export function rewardNotes(model: Model, name: string): RewardNotes {
  const advice = 'Train one with: attune train reward';
  const { head } = model;
  if (head === null) throw new UserError(`${name} is a language model: it has no reward head. ${advice}`);
  const notes = model.notes.reward as RewardNotes | undefined;
  if (notes === undefined) {
    // Reward models of other programs: one number per sequence, in a sequence classifier's config.
    const architectures = (model.config.architectures ?? []) as string[];
    const foreign = head.outputs === 1 && architectures.some((each) => each.endsWith('ForSequenceClassification'));
    if (foreign && model.notes.head === undefined) return { ...foreignNotes };
    throw new UserError(
      `${name} has a head with ${head.outputs} output${head.outputs === 1 ? '' : 's'} (${head.kind}) that was not trained as a reward model. ${advice}`,
    );
  }
  const wanted = rewardHeads[notes.type];
  if (wanted === undefined || head.outputs !== wanted.outputs) {
    throw new UserError(
      `${name} calls itself a reward model of type "${notes.type}", but its head has ${head.outputs} outputs.`,
    );
  }
  if (!(notes.step > 0)) throw new UserError(`${name} has a reward head that was never trained. ${advice}`);
  if (!head.weight.numbers().every(Number.isFinite))
    throw new UserError(`${name}: the head holds numbers that are not finite; its training diverged.`);
  return notes;
}

const foreignNotes: RewardNotes = {
  type: 'preference',
  step: 1,
  stripThinking: false,
  format: 'auto',
  stepSeparator: '\n',
  maxLength: 4096,
  mean: 0,
  std: 0,
  count: 0,
};
