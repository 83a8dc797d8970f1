/** A GRPO step as `attune train policy` takes it: some prompts with 8 answers each, reference, advantages, loss, AdamW. */
import { addLora, initModel, Sampler } from '../../src/models/index.ts';
import { AdamW } from '../../src/nn/index.ts';
import { rewardFunction } from '../../src/rewards/index.ts';
import { ListPrompts } from '../../src/rollouts/dataset-prompts.ts';
import { resolveConfig } from '../../src/runs/index.ts';
import type { Tokenizer } from '../../src/text/index.ts';
import { algorithmOf } from '../../src/trainers/policy/algorithm-options.ts';
import { policySchema } from '../../src/trainers/policy/config.ts';
import { PolicyTask } from '../../src/trainers/policy/task.ts';
import { AdapterReference } from '../../src/trainers/reference/adapters.ts';
import { ModelReference } from '../../src/trainers/reference/reference.ts';
import { randomIds } from '../support/shapes.ts';
import { type Measured, measuredStep, type StepWork } from './measured.ts';
import { LORA } from './preference.ts';

const GROUP = 8;

export type GrpoMeasured = Measured & {
  tokens: number;
  /** The sampler's log-probs against the trainer's: the largest mean of a step, and the worst token of all. */
  samplerGap: { mean: number; max: number };
};

export async function grpoSteps(
  work: StepWork,
  asked: number,
  { answer = work.cuda ? 512 : 64, lr = 1e-6, lora = false }: { answer?: number; lr?: number; lora?: boolean } = {},
): Promise<GrpoMeasured> {
  const promptLength = work.cuda ? 128 : 32;
  const { shape, cacheDtype = 'model' } = work;
  const device = work.cuda ? 'cuda:0' : 'cpu';
  using model = initModel(shape, { seed: 0, device });
  if (lora) addLora(model, LORA);
  else model.decoder.requiresGrad_();
  const reference = lora
    ? new AdapterReference(model)
    : new ModelReference(initModel(shape, { seed: 0, device }), model);
  using sampler = new Sampler(model, { cacheDtype });
  const { config } = resolveConfig(policySchema, {
    flags: {
      ...{ algorithm: 'grpo', groupSize: GROUP, batchSize: asked, gradAccum: 1, maxNewTokens: answer, topP: 0.9 },
      cacheDtype,
    },
  });
  const prompts = Array.from({ length: 32 * asked }, (_, index) => ({
    index,
    messages: [],
    text: '',
    ids: Int32Array.from(randomIds(promptLength, shape.vocab_size, index)),
  }));
  // random weights write no text: nothing ends an answer before its last token, and the reward is any number
  const tokenizer = { eosIds: [] as number[], decode: () => '' } as unknown as Tokenizer;
  let drawn = 0;
  using optimizer = new AdamW(model.trainable(), { lr });
  const task = new PolicyTask({
    config,
    ...algorithmOf({ ...config, klCoef: 0.01 }),
    model,
    tokenizer,
    sampler,
    optimizer,
    reference,
    critic: null,
    prompts: new ListPrompts(prompts, 1),
    scorer: rewardFunction((items) => items.map(() => Math.sin(++drawn))),
    plannedSteps: { maxSteps: work.steps + 1, prompts: 0 },
  });
  const samplerGap = { mean: 0, max: 0 };
  const measured = await measuredStep(task, work, { lr, maxGradNorm: 1 }, (metrics) => {
    samplerGap.mean = Math.max(samplerGap.mean, metrics['train/sampler_gap'] as number);
    samplerGap.max = Math.max(samplerGap.max, metrics['train/sampler_gap_max'] as number);
  });
  reference.dispose();
  return { ...measured, tokens: asked * GROUP * answer, samplerGap };
}

/** 250 steps of short answers at a rate that moves the weights: does the sampler stay with the trainer? */
export const gapSteps = (work: StepWork): Promise<GrpoMeasured> =>
  grpoSteps({ ...work, steps: work.cuda ? 250 : work.steps }, 2, { answer: work.cuda ? 128 : 16, lr: 1e-5 });

/** How the step's time is shared out, and the rates of its two halves. */
export function grpoParts({ metrics, seconds, tokens, samplerGap }: GrpoMeasured): Record<string, string | number> {
  const part = (name: string) => metrics[`train/${name}_seconds`] as number;
  const share = (name: string) => `${Math.round((100 * part(name)) / seconds)} %`;
  return {
    stepSeconds: Math.round(seconds * 100) / 100,
    rolloutTokensPerSecond: Math.round(tokens / part('rollout')),
    trainingTokensPerSecond: Math.round(tokens / (part('prepare') + part('train'))),
    rollout: share('rollout'),
    reference: share('prepare'),
    training: share('train'),
    samplerGap: samplerGap.mean.toExponential(1),
    samplerGapMax: samplerGap.max.toExponential(1),
  };
}
