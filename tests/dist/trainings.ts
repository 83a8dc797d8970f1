/** Short trainings of every trainer and every loss on a tiny model, for one process and for several. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { policyAlgorithms, preferenceLosses } from '../../src/algorithms/index.ts';
import type { RewardItem } from '../../src/rewards/index.ts';
import { openRollouts } from '../../src/runs/store/rollouts.ts';
import { corpusRows } from '../../src/tasks/index.ts';
import { openSafetensors } from '../../src/tensor/index.ts';
import type { TrainingRun } from '../../src/trainers/loop/training-run.ts';
import { trainPolicy } from '../../src/trainers/policy/policy.ts';
import { trainPreference } from '../../src/trainers/preference/preference.ts';
import { trainReward } from '../../src/trainers/reward/reward.ts';
import { trainSft } from '../../src/trainers/sft/sft.ts';
import { evenTurns } from '../support/turns.ts';

export interface Place {
  /** The folder of the tiny model, which may have a teacher beside it, and one for the runs. */
  model: string;
  output: string;
}

/** What a training came to. */
export interface Outcome {
  losses: number[];
  evaluated: Record<string, number>;
  /** The samples of a policy, with their rewards. */
  samples: string;
  /** A hash of the final weights, and the weights. */
  bits: string;
  weights: number[];
}

type Start = (place: Place, config: object) => Promise<TrainingRun>;

const rows = (corpus: 'sft' | 'preference' | 'graded' | 'steps', count: number) =>
  [...corpusRows(corpus, { tasks: 'chain_sum:2', count, seed: 3, perPrompt: 2 })] as unknown as Record<
    string,
    unknown
  >[];

/** An odd number of micro-batches, examples of different lengths, and a last step with fewer of them than ranks. */
const data = { batchSize: 2, gradAccum: 3, epochs: 1, evalBatchSize: 2, evalNumBatches: 3, validationSplit: 0.2 };
const shared = {
  lr: 5e-3,
  evalSteps: 2,
  saveSteps: -1,
  reportTo: ['none' as const],
  lrSchedule: 'constant' as const,
  seed: 7,
};
/** Leaves out what is said of an evaluation that a training's own options turn off. */
function withoutUnread<Config extends object>(config: Config): Config {
  if (!('evalSteps' in config) || config.evalSteps !== -1) return config;
  const unread = ['evalBatchSize', 'evalNumBatches', 'evalNumPrompts', 'evalSamples'];
  return Object.fromEntries(Object.entries(config).filter(([name]) => !unread.includes(name))) as Config;
}
const options = { cache: false, run: { curves: false } } as const;

const even = (items: readonly RewardItem[]) =>
  items.map(({ response }) => ((response.codePointAt(response.length - 1) ?? 1) % 2 === 0 ? 1 : 0));

const colours = ['red', 'a much longer question than that, about blue', 'green', 'yellow or not', 'violet', 'no'];

const policy =
  (algorithm: string): Start =>
  ({ model, output }, config) =>
    trainPolicy(
      withoutUnread({
        ...{ model, outputDir: output, algorithm, dataset: colours.map((prompt) => ({ prompt })), promptFormat: 'raw' },
        ...{
          ...shared,
          maxNewTokens: 4,
          groupSize: 4,
          batchSize: 3,
          gradAccum: 1,
          maxSteps: 2,
          eosPenalty: 0,
          evalNumPrompts: 2,
          evalSamples: 2,
          microBatchTokens: 40,
          topP: 1,
        },
        ...config,
      }),
      { ...options, rewards: [even] },
    ).open();

/** Episodes of several turns; the model beside the given one often ends its turn. */
const episodes: Start = ({ model, output }, config) =>
  trainPolicy(
    withoutUnread({
      ...{ model: `${model}-turns`, outputDir: output, algorithm: 'grpo', env: evenTurns, ...shared },
      ...{
        maxNewTokens: 120,
        groupSize: 4,
        batchSize: 3,
        gradAccum: 1,
        maxSteps: 2,
        evalNumPrompts: 2,
        evalSamples: 2,
      },
      ...{ microBatchTokens: 200, ...config },
    }),
    options,
  ).open();

const preference =
  (loss: string, unpaired: boolean): Start =>
  ({ model, output }, config) =>
    trainPreference(
      withoutUnread({
        ...{ model, outputDir: output, loss, dataset: unpaired ? labelled() : rows('preference', 10) },
        ...{ ...shared, ...data, evalNumBatches: undefined, maxLength: 128, ...config },
      }) as never,
      options,
    ).open();

const labelled = () =>
  rows('preference', 5).flatMap(({ prompt, chosen, rejected }) => [
    { prompt, completion: chosen, label: true },
    { prompt, completion: rejected, label: false },
  ]);

const reward =
  (type: 'preference' | 'outcome' | 'process'): Start =>
  ({ model, output }, config) => {
    const corpus = { preference: 'preference', outcome: 'graded', process: 'steps' } as const;
    return trainReward(
      withoutUnread({
        ...{
          model,
          outputDir: output,
          type,
          dataset: rows(corpus[type], 10),
          stripThinking: false,
          analysisSamples: 0,
        },
        ...{ ...shared, ...data, ...config },
      }),
      options,
    ).open();
  };

const sft: Start = ({ model, output }, config) =>
  trainSft(
    withoutUnread({ model, outputDir: output, dataset: rows('sft', 10), ...shared, ...data, ...config }),
    options,
  ).open();

/** Another tiny model, in the folder beside the one that is trained. */
const taught = ({ model }: Place) => ({ teacher: join(dirname(model), 'teacher') });

/** Options of rewards are refused by what does not learn from them. */
const unrewarded = (place: Place) => ({ ...taught(place), eosPenalty: undefined });

/** Every training by name. */
export const trainings: Record<string, Start> = {
  sft,
  'sft with LoRA and dropout': (place, config) => sft(place, { lora: true, loraR: 2, loraDropout: 0.2, ...config }),
  'sft with QLoRA': (place, config) => sft(place, { lora: true, loraR: 2, quantType: 'int4', ...config }),
  'sft with checkpointing': (place, config) => sft(place, { gradientCheckpointing: true, ...config }),
  'sft with a teacher': (place, config) =>
    sft(place, { ...taught(place), teacherTopK: 8, distillShare: 0.6, ...config }),
  'sft with LoRA and a teacher': (place, config) =>
    sft(place, { ...taught(place), teacherTopK: 0, lora: true, loraR: 2, ...config }),
  ...Object.fromEntries(
    (['preference', 'outcome', 'process'] as const).map((type) => [`reward ${type}`, reward(type)]),
  ),
  ...Object.fromEntries(preferenceLosses.map(({ name }) => [`preference ${name}`, preference(name, name === 'kto')])),
  ...Object.fromEntries(
    policyAlgorithms.map(({ name, needsTeacher }): [string, Start] => [
      `policy ${name}`,
      (place, config) => policy(name)(place, { ...(needsTeacher ? unrewarded(place) : {}), ...config }),
    ]),
  ),
  'policy opd by advantage': (place, config) =>
    policy('opd')(place, { ...unrewarded(place), distillAs: 'advantage', ...config }),
  'policy in an environment': episodes,
};

export async function outcomeOf(start: Start, place: Place, config: object = {}): Promise<Outcome> {
  using run = await start(place, config);
  const losses: number[] = [];
  let evaluated: Record<string, number> = {};
  for await (const step of run) {
    losses.push(step.metrics['train/loss'] as number);
    if (step.eval !== undefined) evaluated = { ...step.eval };
  }
  return { losses, evaluated, samples: samplesOf(run.folder), ...weightsOf(join(run.folder, 'final')) };
}

/** What was sampled and what it scored, in the order of the database. */
function samplesOf(folder: string): string {
  const path = join(folder, 'rollouts.db');
  if (!existsSync(path)) return '';
  using rollouts = openRollouts(path);
  const text = ({
    step,
    promptIndex,
    completion,
    reward,
  }: {
    step: number;
    promptIndex: number;
    completion: string;
    reward: number;
  }) => JSON.stringify([step, promptIndex, completion, reward]);
  return [...rollouts.query().map(text), ...rollouts.evalQuery().map(text)].join('\n');
}

/** Rank 0 alone has written the final model when its training ends; what the others see of it does not count. */
function weightsOf(folder: string): Pick<Outcome, 'bits' | 'weights'> {
  const path = ['model.safetensors', 'adapter_model.safetensors'].map((file) => join(folder, file)).find(existsSync);
  if (path === undefined) return { bits: '', weights: [] };
  using file = openSafetensors(path);
  const weights = file.names.flatMap((each) => Array.from(file.tensor(each).numbers()));
  return { bits: createHash('sha256').update(readFileSync(path)).digest('hex'), weights };
}

/** A training under a name, with its own options. */
export interface Job extends Place {
  label: string;
  training: string;
  config: object;
}

export async function runJobs(jobs: readonly Job[]): Promise<Record<string, Outcome>> {
  const outcomes: Record<string, Outcome> = {};
  for (const { label, training, config, ...place } of jobs) {
    const start = trainings[training];
    if (start === undefined) throw new Error(`there is no training ${training}`);
    outcomes[label] = await outcomeOf(start, place, config);
  }
  return outcomes;
}
