/** What the studies do with policies: sample responses and have them verified, measure their drift, train them and look on. */
import { join } from 'node:path';
import { meanOf } from '../../src/algorithms/index.ts';
import type { Training } from '../../src/index.ts';
import {
  deviceOf,
  dtypeOf,
  loadModel,
  loadTokenizer,
  type Model,
  responseLogprobs,
  Sampler,
} from '../../src/models/index.ts';
import { type Example, mixture, task } from '../../src/tasks/index.ts';
import { ChatFormat, type Tokenizer } from '../../src/text/index.ts';
import type { Lab } from './study.ts';

/** Settings of every run: nothing saved on the way, a constant learning rate, metrics of every step. */
export function settings({ model, seed, folder }: Lab, runName: string) {
  return {
    model,
    seed,
    runName,
    outputDir: join(folder, 'runs'),
    reportTo: [],
    logSteps: 1,
    saveSteps: -1,
    warmupSteps: 5,
    lrSchedule: 'constant' as const,
  };
}

export const quiet = { run: { curves: false } };

export interface Response {
  problem: Example;
  text: string;
  correct: boolean;
  tokens: number;
  /** Prompt and response, for a model's log-probabilities. */
  ids: Int32Array;
  promptLength: number;
  /** log π of the whole response, as it was sampled. */
  logprob: number;
}

export interface Asked {
  tasks: string;
  problems: number;
  samples: number;
  seed: number;
  part?: 'train' | 'test';
  maxNewTokens?: number;
}

/** Sampled responses at temperature 1, one list per problem, with the verifier's verdict. */
export async function ask(policy: Model, tokenizer: Tokenizer, asked: Asked): Promise<Response[][]> {
  const { tasks, problems, samples, seed, part = 'test', maxNewTokens = 64 } = asked;
  const chat = new ChatFormat(tokenizer);
  const drawn = mixture(tasks);
  const posed = Array.from({ length: problems }, (_, i) => drawn.example(seed, i, { part }));
  const prompts = posed.map(({ prompt }) => tokenizer.encode(chat.prompt([{ role: 'user', content: prompt }])));
  const wasTraining = policy.decoder.training;
  const sampler = new Sampler(policy.train(false), { tokenizer });
  try {
    const groups = await sampler.generate(
      prompts.map((prompt, i) => ({
        prompt,
        samples,
        temperature: 1,
        maxNewTokens,
        stopIds: tokenizer.eosIds,
        seed: seed * 1_000_000 + i * samples,
      })),
    );
    return groups.map((group, i) => {
      const problem = posed[i] as Example;
      const prompt = prompts[i] as ArrayLike<number>;
      return group.map(({ text = '', ids, logprobs }) => ({
        problem,
        text,
        tokens: ids.length,
        promptLength: prompt.length,
        ids: Int32Array.from([...Array.from(prompt), ...ids]),
        correct: task(problem.task).score(text, problem) === 1,
        logprob: logprobs.reduce((sum, lp) => sum + lp, 0),
      }));
    });
  } finally {
    sampler.dispose();
    policy.train(wasTraining);
  }
}

/** A policy on the GPU where there is one. */
export function openPolicy(folder: string): Promise<Model> {
  const device = deviceOf('auto');
  return loadModel(folder, { device, dtype: dtypeOf('auto', device) });
}

/** The same from a folder. */
export async function askFolder(folder: string, asked: Asked): Promise<Response[][]> {
  using policy = await openPolicy(folder);
  return await ask(policy, await loadTokenizer(folder), asked);
}

/** KL(policy‖start), nats per response, from the policy's own samples: the mean of log π − log π_start. */
export function klTo(start: Model, groups: readonly Response[][]): number {
  const all = groups.flat();
  const before = responseLogprobs(start.decoder, all);
  return meanOf(all.map(({ logprob }, i) => logprob - (before[i] as number)));
}

export const rightShare = (groups: readonly Response[][]) =>
  meanOf(groups.flat().map(({ correct }) => Number(correct)));
export const meanTokens = (groups: readonly Response[][]) => meanOf(groups.flat().map(({ tokens }) => tokens));

/**
 * Pairs of a model's own responses to training problems, a right one and a wrong one, as many of each group as there are. The
 * verifier is the judge, so that no label is wrong.
 */
export function pairsOf(groups: readonly Response[][]): { prompt: string; chosen: string; rejected: string }[] {
  return groups.flatMap((group) => {
    const right = group.filter(({ correct }) => correct);
    const wrong = group.filter(({ correct }) => !correct);
    return Array.from({ length: Math.min(right.length, wrong.length) }, (_, i) => ({
      prompt: (group[0] as Response).problem.prompt,
      chosen: (right[i] as Response).text,
      rejected: (wrong[i] as Response).text,
    }));
  });
}

type Metrics = Readonly<Record<string, number>>;

/** Trains to the end, calls `look` with the model in training at the given steps, and returns every step's metrics. */
export async function watch(
  training: Training,
  at: readonly number[],
  look: (model: Model, step: number) => Promise<void>,
): Promise<Metrics[]> {
  using run = await training.open();
  const steps: Metrics[] = [];
  for await (const { step, metrics } of run) {
    steps.push(metrics);
    if (at.includes(step)) await look(run.model, step);
  }
  return steps;
}

/** A metric over the steps, without its prefix. */
export const courseOf = (steps: readonly Metrics[], name: string) =>
  steps.map((metrics) => metrics[`train/${name}`] ?? Number.NaN);

/** The mean of the last values. */
export const lately = (values: readonly number[], count: number) => meanOf(values.slice(-count));

/** Trains to the end and returns the folder of the trained model. */
export async function finished(training: Training): Promise<string> {
  const { folder } = await training;
  return join(folder, 'final');
}
