/**
 * Builds preference pairs from a policy's own responses: sample K responses to each prompt, score them with a reward
 * model, a verifier or a reward module, and write pairs. For iterated training see recipes/iterated-preferences.sh.
 *
 *     await buildPreferences({ model: './policy', task: 'chain_sum', prompts: 500, samples: 8, output: 'pairs.jsonl' });
 */
import { createWriteStream, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { finished } from 'node:stream/promises';
import { z } from 'zod';
import { meanOf } from '../algorithms/index.ts';
import type { DatasetSpec } from '../data/index.ts';
import { UserError } from '../errors.ts';
import { deviceOf, dtypeOf, loadModel, loadTokenizer, type Model, Sampler } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import type { RewardScorer } from '../rewards/index.ts';
import { datasetPrompts } from '../rollouts/dataset-prompts.ts';
import { promptWriter } from '../rollouts/opening.ts';
import type { PolicyPrompt, PromptWriter } from '../rollouts/prompts.ts';
import { type RolloutSampler, rolloutSeeds, sampleRollouts } from '../rollouts/rollout.ts';
import { configuredScorer } from '../rollouts/scorer.ts';
import { scoreRollouts } from '../rollouts/scoring.ts';
import { TaskPrompts } from '../rollouts/task-prompts.ts';
import { field, resolveConfig } from '../runs/index.ts';
import type { Message } from '../text/index.ts';
import { checkRewardModel, policySchema } from '../trainers/policy/config.ts';

const positive = () => z.number().int().positive();
const group = 'Pairs';

const pairKinds = ['best-worst', 'all'] as const;
export type PairKind = (typeof pairKinds)[number];

export const buildPreferencesSchema = policySchema
  .pick({
    model: true,
    tokenizer: true,
    dtype: true,
    device: true,
    task: true,
    dataset: true,
    subset: true,
    promptMaxLength: true,
    promptFormat: true,
    system: true,
    templateVariables: true,
    rewardModelPath: true,
    rmQuantType: true,
    rewardModule: true,
    rewardWeights: true,
    verifierReward: true,
    formatReward: true,
    rewardTimeout: true,
    onRewardError: true,
    maxNewTokens: true,
    temperature: true,
    topP: true,
    topK: true,
    minP: true,
    seed: true,
  })
  .extend({
    prompts: field(positive().default(256), { description: 'prompts to sample from', group }),
    samples: field(z.number().int().min(2).default(8), {
      description: 'responses per prompt',
      group,
      aliases: ['groupSize'],
    }),
    pairs: field(z.enum(pairKinds).default('best-worst'), {
      description: 'one pair of each prompt, or every pair whose scores differ',
      group,
    }),
    minGap: field(z.number().min(0).default(0), {
      description: 'leave out pairs whose scores differ by no more than this',
      group,
    }),
    batchPrompts: field(positive().default(32), { description: 'prompts sampled at the same time', group }),
    output: field(z.string().default('./preferences.jsonl'), {
      description: 'file to write',
      group,
      aliases: ['outputFile'],
    }),
  });

/** The options of `buildPreferences`. */
export type BuildPreferencesConfig = z.output<typeof buildPreferencesSchema>;

export interface BuildPreferencesOptions {
  /** Prompts in memory, in place of a dataset's name. */
  dataset?: DatasetSpec;
  /** Scorers of your own, besides those of the config. */
  scorers?: readonly RewardScorer[];
  progress?: Progress;
  signal?: AbortSignal;
}

/** The file that was written, and counts of prompts, responses and pairs. */
export interface BuiltPreferences {
  /** The file; if the build was stopped, `….part` beside it with the pairs made so far. */
  output: string;
  stopped: boolean;
  prompts: number;
  pairs: number;
  /** Prompts without a pair, because all their responses had the same score. */
  withoutPairs: number;
  meanScore: number;
  meanChosen: number;
  meanRejected: number;
}

/** One row of the file: what `attune train preference` reads, with the scores as margins. */
export interface BuiltPair {
  prompt: string | readonly Message[];
  chosen: string;
  rejected: string;
  score_chosen: number;
  score_rejected: number;
}

/** Samples responses to prompts, scores them and writes preference pairs to a file. */
export async function buildPreferences(
  given: z.input<typeof buildPreferencesSchema>,
  options: BuildPreferencesOptions = {},
): Promise<BuiltPreferences> {
  const { config } = resolveConfig(buildPreferencesSchema, { flags: given });
  checkRewardModel(config);
  const { progress } = options;
  const device = deviceOf(config.device);
  const tokenizer = await loadTokenizer(config, progress);
  const prompts = await choosePrompts(config, promptWriter(config, tokenizer), options.dataset);
  const scorer = await configuredScorer(config, { device, prompts, extra: options.scorers });
  using model: Model = await loadModel(config.model, { dtype: dtypeOf(config.dtype, device), device, progress });
  const sampler = new Sampler(model.train(false));
  try {
    return await writePairs(config, { prompts, scorer, sampler, tokenizer }, options);
  } finally {
    sampler.dispose();
    scorer.dispose?.();
  }
}

async function choosePrompts(
  config: BuildPreferencesConfig,
  writer: PromptWriter,
  rows: DatasetSpec | undefined,
): Promise<PolicyPrompt[]> {
  const { task, seed, prompts: count, subset } = config;
  if (task !== undefined) return new TaskPrompts(writer, { tasks: task, seed }).take(count);
  const dataset = rows ?? config.dataset;
  if (dataset === undefined) throw new UserError('There are no prompts: name a --task or a --dataset.');
  return (await datasetPrompts(writer, { dataset, subset, trainPrompts: count, evalPrompts: 0, seed })).train;
}

interface Parts {
  prompts: readonly PolicyPrompt[];
  scorer: RewardScorer;
  sampler: RolloutSampler;
  tokenizer: Parameters<typeof sampleRollouts>[1];
}

/**
 * Written to a temporary file and renamed, so that a failed build leaves no incomplete file. A stopped build keeps its
 * pairs in `….part`.
 */
async function writePairs(
  config: BuildPreferencesConfig,
  parts: Parts,
  { progress, signal }: BuildPreferencesOptions,
): Promise<BuiltPreferences> {
  const { output, batchPrompts } = config;
  const { prompts } = parts;
  mkdirSync(dirname(output), { recursive: true });
  const partial = `${output}.${process.pid}.part`;
  const file = createWriteStream(partial);
  const scores: number[] = [];
  const made: BuiltPair[] = [];
  let done = 0;
  let withoutPairs = 0;
  const bar = progress?.start('sampling', prompts.length, 'prompts');
  try {
    for (; done < prompts.length && !signal?.aborted; done += batchPrompts) {
      const batch = await scoredPairs(config, parts, done, signal);
      scores.push(...batch.scores);
      for (const pairs of batch.pairs) {
        if (pairs.length === 0) withoutPairs++;
        made.push(...pairs);
        for (const pair of pairs) file.write(`${JSON.stringify(pair)}\n`);
      }
      bar?.advance(batch.pairs.length, { pairs: made.length });
    }
  } catch (error) {
    if (!signal?.aborted) {
      file.destroy();
      rmSync(partial, { force: true });
      throw error;
    }
  } finally {
    bar?.done();
  }
  file.end();
  await finished(file);
  const stopped = done < prompts.length;
  const kept = stopped ? `${output}.part` : output;
  renameSync(partial, kept);
  return {
    output: kept,
    stopped,
    prompts: Math.min(done, prompts.length),
    pairs: made.length,
    withoutPairs,
    meanScore: meanOf(scores),
    meanChosen: meanOf(made.map((pair) => pair.score_chosen)),
    meanRejected: meanOf(made.map((pair) => pair.score_rejected)),
  };
}

/** Responses to the prompts from `first` on, their scores, and the pairs of each prompt. */
async function scoredPairs(
  config: BuildPreferencesConfig,
  { prompts, scorer, sampler, tokenizer }: Parts,
  first: number,
  signal: AbortSignal | undefined,
): Promise<{ scores: number[]; pairs: BuiltPair[][] }> {
  const { samples: groupSize, batchPrompts, seed } = config;
  const batch = prompts.slice(first, first + batchPrompts);
  const seeds = rolloutSeeds(seed, first);
  const rollouts = await sampleRollouts(sampler, tokenizer, batch, { ...config, groupSize, seeds, signal });
  await scoreRollouts(scorer, rollouts, signal);
  const pairs = batch.map((prompt, i) => {
    const group = rollouts.slice(i * groupSize, (i + 1) * groupSize);
    const responses = group.map(({ completion, score }) => ({ text: completion, score }));
    return pairsOf(responses, config).map(([w, l]) => ({
      prompt: asWritten(prompt.messages),
      chosen: w.text,
      rejected: l.text,
      score_chosen: w.score,
      score_rejected: l.score,
    }));
  });
  return { scores: rollouts.map(({ score }) => score), pairs };
}

export interface ScoredResponse {
  text: string;
  score: number;
}

/** Pairs of different texts whose scores differ by more than the gap, better one first. */
export function pairsOf<T extends ScoredResponse>(
  responses: readonly T[],
  { pairs, minGap }: Pick<BuildPreferencesConfig, 'pairs' | 'minGap'>,
): [T, T][] {
  const ranked = [...new Map(responses.map((each) => [each.text, each])).values()].sort((a, b) => b.score - a.score);
  const all = ranked.flatMap((better, i) =>
    ranked
      .slice(i + 1)
      .filter((worse) => better.score - worse.score > minGap)
      .map((worse): [T, T] => [better, worse]),
  );
  if (pairs === 'all') return all;
  const best = all.filter(([better]) => better === ranked[0]).at(-1);
  return best === undefined ? [] : [best];
}

/** A single user message as plain text, a longer conversation as messages. */
function asWritten(messages: readonly Message[]): BuiltPair['prompt'] {
  const [only] = messages;
  return messages.length === 1 && only?.role === 'user' ? only.content : messages;
}
