/** What the chapters' experiments share: settings of a small run, its steps as curves, and sampled responses. */
import { join } from 'node:path';
import { meanOf } from '../../algorithms/index.ts';
import { loadModel, loadTokenizer, Sampler } from '../../models/index.ts';
import { type Example, mixture, task } from '../../tasks/index.ts';
import { ChatFormat } from '../../text/index.ts';
import type { Training } from '../../trainers/loop/training.ts';
import type { Curve, Lab } from './experiment.ts';

/** Settings of every run: nothing saved on the way, a constant learning rate, metrics of every step. */
export function settings(lab: Lab, runName: string) {
  return {
    model: lab.model,
    seed: lab.seed,
    runName,
    outputDir: join(lab.folder, 'runs'),
    reportTo: [],
    logSteps: 1,
    saveSteps: -1,
    warmupSteps: 5,
    lrSchedule: 'constant' as const,
  };
}

/** What a trainer is given besides its settings. */
export function surroundings(lab: Lab) {
  const { progress, signal } = lab;
  return {
    run: { curves: false },
    ...(progress === undefined ? {} : { progress }),
    ...(signal === undefined ? {} : { signal }),
  };
}

export interface Recorded {
  steps: { step: number; train: Readonly<Record<string, number>>; held?: Readonly<Record<string, number>> }[];
  /** The trained model. */
  checkpoint: string;
}

/** Trains to the end and keeps the metrics of every step. */
export async function recorded(lab: Lab, training: Training): Promise<Recorded> {
  const steps: Recorded['steps'] = [];
  for await (const { step, train, eval: held } of training)
    steps.push({ step, train, ...(held === undefined ? {} : { held }) });
  lab.signal?.throwIfAborted();
  return { steps, checkpoint: join(training.folder, 'final') };
}

/** A metric of training over the steps, as the mean of a few neighbours. */
export function trainCurve(name: string, { steps }: Recorded, metric: string, neighbours = 1): Curve {
  const found = steps.filter(({ train }) => train[metric] !== undefined);
  const values = found.map(({ train }) => train[metric] as number);
  return {
    name,
    x: found.map(({ step }) => step),
    y: values.map((_, i) => meanOf(values.slice(Math.max(0, i + 1 - neighbours), i + 1))),
  };
}

/** A metric of the held-out evaluations. */
export function heldCurve(name: string, { steps }: Recorded, metric: string): Curve {
  const found = steps.filter(({ held }) => held?.[metric] !== undefined);
  return { name, x: found.map(({ step }) => step), y: found.map(({ held }) => held?.[metric] as number) };
}

/** The mean of a training metric over the last steps. */
export function lately({ steps }: Recorded, metric: string, count = 10): number {
  return meanOf(steps.slice(-count).flatMap(({ train }) => (train[metric] === undefined ? [] : [train[metric]])));
}

export interface Response {
  problem: Example;
  text: string;
  correct: boolean;
  tokens: number;
}

/** Sampled responses to problems (held-out ones unless said), one list per problem, with the verifier's verdict. */
export async function sampleResponses(
  lab: Lab,
  model: string,
  options: { tasks: string; problems: number; samples: number; temperature?: number; part?: 'train' | 'test' },
): Promise<Response[][]> {
  const { tasks, problems, samples, temperature = 1, part = 'test' } = options;
  const tokenizer = await loadTokenizer(model);
  using loaded = await loadModel(model, { dtype: 'float32' });
  using sampler = new Sampler(loaded, { tokenizer });
  const chat = new ChatFormat(tokenizer);
  const drawn = mixture(tasks);
  const asked = Array.from({ length: problems }, (_, i) => drawn.example(lab.seed, i, { part }));
  const groups = await sampler.generate(
    asked.map(({ prompt }, i) => ({
      prompt: tokenizer.encode(chat.prompt([{ role: 'user', content: prompt }])),
      samples,
      temperature,
      maxNewTokens: 64,
      stopIds: tokenizer.eosIds,
      seed: lab.seed * 1_000_000 + i * samples,
    })),
    surroundings(lab),
  );
  return groups.map((group, i) => {
    const problem = asked[i] as Example;
    return group.map(({ text = '', ids }) => ({
      problem,
      text,
      tokens: ids.length,
      correct: task(problem.task).score(text, problem) === 1,
    }));
  });
}

export const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
