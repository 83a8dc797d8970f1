import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { preferenceRows, unpairedRows } from '../../../tests/support/preference-rows.ts';
import { type Given, preferenceTrainings } from '../../../tests/support/preference-training.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { liveTensors } from '../../tensor/index.ts';
import type { TrainStep } from '../loop/loop.ts';
import type { TrainingRun } from '../loop/training-run.ts';
import { type PreferenceTrainerOptions, trainPreference } from './preference.ts';

const trainings = preferenceTrainings();
const { folder, model } = trainings;
const start = (given: Given, options?: PreferenceTrainerOptions) =>
  trainings.start({ lrSchedule: 'constant', ...given }, options);

const weightsOf = (run: TrainingRun) =>
  new Map(Array.from(run.model.trainable(), ([name, parameter]) => [name, parameter.detach().numbers()]));

async function train(given: Given, { stopAfter, ...options }: PreferenceTrainerOptions & { stopAfter?: number } = {}) {
  using run = await start(given, options);
  const steps: TrainStep[] = [];
  for await (const step of run) {
    steps.push(step);
    if (step.step === stopAfter) break;
  }
  return { steps, weights: weightsOf(run), folder: run.folder };
}

const plainMetrics = (step: TrainStep) =>
  Object.fromEntries(Object.entries(step.metrics).filter(([name]) => !/time|per_second/.test(name)));

/** The share of weights that differ by more than `bound`. */
function shareOver(bound: number, a: Map<string, number[]>, b: Map<string, number[]>): number {
  const gaps = [...a].flatMap(([name, values]) => values.map((value, i) => Math.abs(value - (b.get(name)?.[i] ?? 0))));
  return gaps.filter((gap) => !(gap <= bound)).length / gaps.length;
}

function largestDifference(a: Map<string, number[]>, b: Map<string, number[]>): number {
  expect([...a.keys()]).toEqual([...b.keys()]);
  let most = 0;
  for (const [name, values] of a) {
    const other = b.get(name) as number[];
    for (const [i, value] of values.entries()) most = Math.max(most, Math.abs(value - (other[i] as number)));
  }
  return most;
}

describe('a step', () => {
  // runs first, because tensors that other tests leave to the garbage collector would change the count
  it('leaves no tensors behind, and a run none at all', async () => {
    const before = await settledTensors();
    for (const given of [{ loss: 'kto', lora: true }, { refQuantType: 'int4' } as const]) {
      const run = await start({ ...given, maxSteps: 5, evalSteps: 1 });
      const live: number[] = [];
      for await (const _ of run) live.push(liveTensors());
      expect(new Set(live.slice(1)).size).toBe(1);
      run.dispose();
      expect(liveTensors()).toBe(before);
    }
  });

  it.each(['dpo', 'kto', 'orpo'])('of %s does not depend on how it is split', async (loss) => {
    const whole = await train({ loss, batchSize: 8, gradAccum: 1 });
    const split = await train({ loss, batchSize: 1, gradAccum: 8 });
    // AdamW divides by the gradient's magnitude. If that is rounding noise, a weight may move by part of a full update
    // (3e-3).
    expect(largestDifference(whole.weights, split.weights)).toBeLessThan(3e-4);
    expect(shareOver(1e-6, whole.weights, split.weights)).toBeLessThan(1e-3);
    for (const [i, step] of whole.steps.entries())
      expect(split.steps[i]?.metrics['train/loss']).toBeCloseTo(step.metrics['train/loss'] as number, 4);
  });

  it('starts where policy and reference are one, and says what it should', async () => {
    const { steps } = await train({ loss: 'dpo', maxSteps: 2 });
    const first = steps[0]?.metrics as Record<string, number>;
    expect(first['train/loss']).toBeCloseTo(Math.LN2, 5);
    expect(first['train/margin']).toBeCloseTo(0, 5);
    expect(first['train/log_ratio']).toBeCloseTo(0, 5);
    expect(Object.keys(first)).toEqual(
      expect.arrayContaining(
        ['accuracy', 'chosen_reward', 'rejected_reward', 'chosen_lp', 'rejected_lp', 'grad_norm', 'lr'].map(
          (name) => `train/${name}`,
        ),
      ),
    );
    expect(first['train/chosen_length']).toBeGreaterThan(2);
  });

  it('checkpointing changes nothing but memory', async () => {
    const plain = await train({ maxSteps: 2 });
    const checkpointed = await train({ maxSteps: 2, gradientCheckpointing: true });
    expect(largestDifference(plain.weights, checkpointed.weights)).toBeLessThan(1e-6);
  });
});

describe('stop and resume', () => {
  const cases: [string, Given][] = [
    ['whole, KTO', { loss: 'kto', dataset: unpairedRows(60), maxSteps: 6 }],
    [
      'adapters with dropout and a moving reference',
      { lora: true, loraDropout: 0.2, refModelUpdateFreq: 2, maxSteps: 6 },
    ],
    ['whole with a moving reference', { loss: 'ipo', refModelUpdateFreq: 2, maxSteps: 6 }],
  ];
  it.each(cases)('bit for bit: %s', async (_, given) => {
    const whole = await train({ ...given, evalSteps: 2 });
    const first = await train({ ...given, evalSteps: 2 }, { stopAfter: 3 });
    // the checkpoint's config has everything except the rows, which the program holds
    const { dataset = preferenceRows(40) } = given;
    using run = await trainPreference(
      { resumeFrom: join(first.folder, 'step-3'), dataset },
      { cache: false, run: { curves: false } },
    ).open();
    const rest: TrainStep[] = [];
    for await (const step of run) rest.push(step);
    expect(rest.map(plainMetrics)).toEqual(whole.steps.slice(3).map(plainMetrics));
    expect(largestDifference(weightsOf(run), whole.weights)).toBe(0);
  });
});

describe('references', () => {
  it('adapters off are the same as a second copy', async () => {
    const lora = { lora: true, loraDropout: 0, maxSteps: 4 };
    const off = await train(lora);
    const copy = await train({ ...lora, refModel: model });
    expect(copy.steps.map(plainMetrics)).toEqual(off.steps.map(plainMetrics));
    expect(off.steps.at(-1)?.metrics['train/margin']).toBeGreaterThan(0);
  });

  it('cached is live, and is read the second time', async () => {
    const live = await train({ evalSteps: 4 });
    const cached = await train({ evalSteps: 4, precomputeRef: true });
    for (const [i, step] of live.steps.entries())
      expect(cached.steps[i]?.metrics['train/loss']).toBeCloseTo(step.metrics['train/loss'] as number, 5);
    expect(cached.steps.at(-1)?.metrics['eval/loss']).toBeCloseTo(live.steps.at(-1)?.metrics['eval/loss'] as number, 5);
    const tables = () => readdirSync(join(folder, 'cache', 'reference'));
    expect(tables()).toHaveLength(2);
    const computed: string[] = [];
    const progress = {
      start: (label: string) => {
        computed.push(label);
        return { advance() {}, done() {} };
      },
    };
    await train({ evalSteps: 4, precomputeRef: true, loss: 'hinge' }, { progress });
    expect(tables()).toHaveLength(2);
    expect(computed).not.toContain('reference log-probs');
  });

  it('cached is live for KTO too, whose z0 no table holds', async () => {
    const given = { loss: 'kto', dataset: unpairedRows(40), maxSteps: 3 };
    const live = await train(given);
    const cached = await train({ ...given, precomputeRef: true });
    for (const [i, step] of live.steps.entries())
      expect(cached.steps[i]?.metrics['train/loss']).toBeCloseTo(step.metrics['train/loss'] as number, 5);
  });

  it('adapters that have learnt something are the reference as they were', async () => {
    const lora = { lora: true, loraDropout: 0, maxSteps: 3, lr: 0.02 };
    const { folder: place } = await train({ ...lora, saveModel: true });
    const { steps } = await train({ ...lora, model: join(place, 'final') });
    expect(steps[0]?.metrics['train/log_ratio']).toBeCloseTo(0, 5);
    const fromBase = await train({ ...lora, model: join(place, 'final'), refModel: model, maxSteps: 1 });
    expect(Math.abs(fromBase.steps[0]?.metrics['train/log_ratio'] as number)).toBeGreaterThan(0.01);
  });

  it('a moving one becomes the current policy', async () => {
    const { steps } = await train({ refModelUpdateFreq: 3, maxSteps: 5 });
    const margins = steps.map((step) => step.metrics['train/margin'] as number);
    expect(margins[2]).toBeGreaterThan(0.01);
    expect(margins[3]).toBeCloseTo(0, 5);
    expect(steps[3]?.metrics['train/loss']).toBeCloseTo(Math.LN2, 5);
  });

  it('another checkpoint differs from the start', async () => {
    await tinyModel(join(folder, 'other'), { seed: 9 });
    const { steps } = await train({ refModel: join(folder, 'other'), maxSteps: 1 });
    expect(Math.abs(steps[0]?.metrics['train/log_ratio'] as number)).toBeGreaterThan(0.01);
  });

  it.each(['int8', 'int4'] as const)('%s is near the start, live and cached', async (type) => {
    const { steps } = await train({ refQuantType: type, maxSteps: 2 });
    const first = steps[0]?.metrics as Record<string, number>;
    expect(first['train/log_ratio']).not.toBe(0);
    expect(Math.abs(first['train/log_ratio'] as number)).toBeLessThan(type === 'int8' ? 0.01 : 0.5);
    expect(first['train/loss']).toBeCloseTo(Math.LN2, type === 'int8' ? 3 : 1);
    const cached = await train({ refQuantType: type, maxSteps: 2, precomputeRef: true });
    for (const [i, step] of steps.entries())
      expect(cached.steps[i]?.metrics['train/loss']).toBeCloseTo(step.metrics['train/loss'] as number, 5);
    const other = await train({ refQuantType: type, refModel: model, lora: true, loraDropout: 0, maxSteps: 1 });
    expect(other.steps[0]?.metrics['train/log_ratio']).toBeCloseTo(first['train/log_ratio'] as number, 5);
  });

  it('what does not go together is said', async () => {
    const refQuantType = 'int8';
    await expect(start({ refQuantType, refModelUpdateFreq: 2 })).rejects.toThrow(/moving reference.*be quantised/);
    await expect(start({ refQuantType, lora: true })).rejects.toThrow(/the policy's own base.*name another model/);
    await expect(start({ refQuantType, loss: 'simpo' })).rejects.toThrow(/simpo has no reference.*--ref-quant-type/);
    await expect(start({ loss: 'dpo', refModel: false })).rejects.toThrow(/dpo compares with a reference.*simpo, orpo/);
    await expect(start({ loss: 'simpo', precomputeRef: true })).rejects.toThrow(/simpo has no reference/);
    await expect(start({ refModelUpdateFreq: 2, precomputeRef: true })).rejects.toThrow(/moving reference/);
    await expect(start({ loss: 'hinge', labelSmoothing: 0.1 })).rejects.toThrow(/no effect on hinge/);
    await expect(start({ loss: 'dpoo' })).rejects.toThrow(/Did you mean "dpo"/);
  });
});

describe('KTO', () => {
  it.each([true, false])('takes steps of one class (%s)', async (label) => {
    const { steps } = await train({ loss: 'kto', dataset: unpairedRows(30, () => label), maxSteps: 3, evalSteps: 3 });
    const metrics = steps.at(-1)?.metrics as Record<string, number>;
    expect(metrics['train/loss']).toBeGreaterThan(0);
    const reward = metrics[`train/${label ? 'chosen' : 'rejected'}_reward`] as number;
    expect(label ? reward : -reward).toBeGreaterThan(0.01);
    expect(metrics).not.toHaveProperty(`train/${label ? 'rejected' : 'chosen'}_reward`);
  });

  it('weighs its classes', async () => {
    const given = { loss: 'kto', dataset: unpairedRows(30), maxSteps: 1 };
    const even = await train(given);
    const uneven = await train({ ...given, desirableWeight: 2, undesirableWeight: 2 });
    expect(uneven.steps[0]?.metrics['train/loss']).toBeCloseTo(2 * (even.steps[0]?.metrics['train/loss'] as number), 5);
  });
});

describe('evaluation and samples', () => {
  it('keeps the best model, stops early, writes samples', async () => {
    const seen: string[] = [];
    const { steps, folder: place } = await train(
      {
        lr: 0.02,
        maxSteps: 12,
        evalSteps: 1,
        metricForBestModel: 'eval_rejected_lp',
        earlyStoppingPatience: 2,
        greaterIsBetter: true,
        sampleSteps: 2,
        sampleCount: 2,
        sampleOrder: 'round-robin',
        sampleMaxNewTokens: 4,
        saveModel: true,
      },
      { onSamples: (samples) => void seen.push(...samples.map(({ prompt }) => prompt)) },
    );
    // the loss pushes the rejected responses down, so the best evaluation is at the start
    expect(steps.length).toBeLessThan(12);
    expect(existsSync(join(place, 'best_model', 'model.safetensors'))).toBe(true);
    const lines = readFileSync(join(place, 'samples.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map(({ prompt }) => prompt)).toEqual(seen);
    expect(lines[0]).toMatchObject({ step: 2, response: expect.any(String) });
    expect(seen[0]).toContain('What is');
  });
});
