import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { type Batch, openDataset, packBatch, type Shape, tokenise } from '../../data/index.ts';
import type { Model } from '../../models/index.ts';
import { rewardHeads } from '../../rewards/reward-notes.ts';
import { openRun, readMetrics } from '../../runs/index.ts';
import { corpusRows } from '../../tasks/index.ts';
import { liveTensors, scope } from '../../tensor/index.ts';
import type { TrainStep } from '../loop/loop.ts';
import type { TrainingRun } from '../loop/training-run.ts';
import { trainReward } from '../reward/reward.ts';
import { loadForTraining } from '../setup.ts';
import { trainSft } from '../sft/sft.ts';
import { backwardBatch, batchTask, evaluateBatches } from './batch-task.ts';
import { type Objective, outcomeObjective, preferenceObjective, processObjective, sftObjective } from './objectives.ts';
import { StepBatches } from './step-batches.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-batch-task-'));
afterAll(() => rmSync(folder, { recursive: true }));
let base: string;
beforeAll(async () => {
  base = await tinyModel(join(folder, 'model'));
});

type Kind = 'sft' | 'preference' | 'outcome' | 'process';

const corpus = { sft: 'sft', preference: 'preference', outcome: 'graded', process: 'steps' } as const;
const shapes: Record<Kind, Shape> = { sft: 'messages', preference: 'preference', outcome: 'graded', process: 'steps' };
const rowsOf = (kind: Kind, count = 24) =>
  [...corpusRows(corpus[kind], { tasks: 'chain_sum:2', count, seed: 3, perPrompt: 2 })] as unknown as Record<
    string,
    unknown
  >[];

const objectives: Record<Kind, (model: Model) => Objective<never>> = {
  sft: (model) => sftObjective(model) as Objective<never>,
  preference: (model) => preferenceObjective(model, { centring: 0.1, labelSmoothing: 0.05 }) as Objective<never>,
  outcome: (model) => outcomeObjective(model) as Objective<never>,
  process: (model) => processObjective(model) as Objective<never>,
};

const plain = {
  tokenizer: undefined,
  dtype: 'float32',
  device: 'cpu',
  seed: 5,
  lora: false,
  loraR: 4,
  loraAlpha: 8,
  loraDropout: 0,
  loraBias: 'none',
  useRslora: false,
  useDora: false,
} as const;

async function setUp(kind: Kind) {
  const head = kind === 'sft' ? {} : { head: rewardHeads[kind] };
  const { model, tokenizer } = await loadForTraining({ model: base, ...plain }, head);
  const data = await openDataset(rowsOf(kind), { shape: shapes[kind] });
  return { model, tokenizer, store: await tokenise(data, tokenizer, { cache: false }) };
}

it('holds no more tensors from step to step', async () => {
  const live: number[] = [];
  const config = { model: base, dataset: rowsOf('preference', 60), outputDir: join(folder, 'leak'), maxSteps: 6 };
  const small = { batchSize: 4, gradAccum: 2, evalSteps: 2, evalNumBatches: 2, saveSteps: 2, validationSplit: 0.2 };
  const run = await trainReward(
    { ...config, ...small, reportTo: ['none'], analysisSamples: 0 },
    { cache: false, run: { curves: false } },
  ).open();
  await settledTensors();
  for await (const _ of run) live.push(liveTensors());
  run.dispose();
  expect(live.slice(1)).toEqual(live.slice(1).map(() => live[1]));
});

describe.each(['sft', 'preference', 'outcome', 'process'] as const)('%s', (kind) => {
  it('has a gradient that depends neither on the split into micro-batches nor on their order', async () => {
    const { model, tokenizer, store } = await setUp(kind);
    const records = await store.records([0, 1, 2, 3, 4, 5]);
    const steps = new StepBatches(store, { batchSize: 6, gradAccum: 1, epochs: 1, seed: 1 });
    const objective = objectives[kind](model);
    const parts = { model, tokenizer, objective, steps, optimizer: { lr: 0.1, weightDecay: 0 } };
    const gradients = (batches: Batch[], checkpointing = false) => {
      const task = batchTask({ ...parts, checkpointing });
      task.optimizer.zeroGrad();
      const totals = objective.totals(batches);
      for (const batch of batches) scope(() => void backwardBatch({ model, objective, checkpointing }, batch, totals));
      const flat = task.optimizer.parameters.flatMap((parameter) => scope(() => parameter.grad?.numbers() ?? []));
      task.optimizer.dispose();
      return flat;
    };
    const whole = gradients([packBatch(records)]);
    const largest = Math.max(...whole.map(Math.abs));
    expect(largest).toBeGreaterThan(1e-4);
    const splits: Batch[][] = [
      [records.slice(0, 2), records.slice(2, 3), records.slice(3)].map(packBatch),
      [records.slice(3), records.slice(0, 3)].map(packBatch),
      [packBatch([...records].reverse())],
    ];
    for (const split of splits) expect(furthest(gradients(split), whole)).toBeLessThan(2e-5 * Math.max(1, largest));
    const checkpointed = gradients([packBatch(records)], true);
    expect(furthest(checkpointed, whole)).toBeLessThan(2e-5 * Math.max(1, largest));
    await store.close();
    model.dispose();
  });

  it('has accuracies that are quotients of counts', async () => {
    const { model, store } = await setUp(kind);
    const batches = (await store.records([0, 1, 2, 3, 4, 5, 6])).map((record) => packBatch([record]));
    const objective = objectives[kind](model);
    const metrics = await evaluateBatches(model, objective, batches);
    const decisions = objective.decisions?.(objective.totals(batches)) ?? 0;
    const quotients = Array.from({ length: 2 * decisions + 1 }, (_, halves) => halves / 2 / decisions);
    if (kind === 'sft') expect(metrics).not.toHaveProperty('accuracy');
    else expect(quotients).toContain(metrics.accuracy);
    await store.close();
    model.dispose();
  });

  it('goes on after a stop as if there had been none, bit for bit', async () => {
    const start = (name: string, more: object = {}): Promise<TrainingRun> => {
      const config = {
        ...{ model: base, dataset: rowsOf(kind), outputDir: join(folder, kind), logDir: join(folder, 'logs') },
        ...{ batchSize: 3, gradAccum: 2, lr: 1e-2, saveSteps: 2, evalSteps: 2, evalNumBatches: 2, evalBatchSize: 2 },
        ...{ runName: name, reportTo: ['none' as const], maxSteps: 4, epochs: 3, validationSplit: 0.3, ...more },
      };
      const options = { cache: false, run: { curves: false } } as const;
      return kind === 'sft'
        ? trainSft(config, options).open()
        : trainReward({ ...config, type: kind, stripThinking: false, analysisSamples: 0 }, options).open();
    };
    const straight = await start('straight');
    expect((await straight.finish()).step).toBe(4);
    const stopped = await start('stopped');
    for await (const step of stopped) if (step.step === 2) break;
    const resumed = await start('stopped', { resumeFrom: join(stopped.folder, 'step-2'), runName: undefined });
    const steps: number[] = [];
    for await (const step of resumed) steps.push(step.step);
    expect(steps).toEqual([3, 4]);
    const weights = (run: TrainingRun) => readFileSync(join(run.folder, 'final', 'model.safetensors'));
    expect(weights(resumed).equals(weights(straight))).toBe(true);
    expect(numbersOf(resumed)).toEqual(numbersOf(straight));
    for (const run of [straight, stopped, resumed]) run.dispose();
  });
});

/** The largest absolute difference between two lists. */
function furthest(a: readonly number[], b: readonly number[]): number {
  expect(a.length).toBe(b.length);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);
}

/** A run's metrics without timings. */
function numbersOf(run: TrainingRun): unknown[] {
  return readMetrics(join(run.folder, 'metrics.jsonl')).map((row) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => !/time|per_second/.test(name))),
  );
}

describe('a run that goes on', () => {
  const pairs = rowsOf('preference', 40);
  const settings = { model: base, dataset: pairs, lrSchedule: 'constant' as const, reportTo: ['none' as const] };
  const sized = { gradAccum: 1, evalSteps: -1, validationSplit: 0, analysisSamples: 0 };
  const train = async (more: Parameters<typeof trainReward>[0]) => {
    using run = await trainReward(
      { ...settings, model: base, outputDir: join(folder, 'resume'), ...sized, ...more },
      { cache: false, run: { curves: false } },
    ).open();
    const steps: TrainStep[] = [];
    const planned = run.totalSteps;
    for await (const step of run) steps.push(step);
    const written = openRun(run.folder).info?.totalSteps;
    return {
      steps,
      planned,
      written,
      folder: run.folder,
      epoch: steps.at(-1)?.epoch,
      examples: steps.at(-1)?.train.examples,
    };
  };

  it.each([
    ['half', 4, 10],
    ['double', 16, 3],
  ])('with batches of %s the size trains on exactly what is left', async (_, batchSize, left) => {
    const first = await train({ batchSize: 8, epochs: 1, saveSteps: 5, runName: `to-${batchSize}` });
    expect(first).toMatchObject({ epoch: 1, examples: pairs.length });
    expect(first.steps).toHaveLength(5);
    const more = await train({ resumeFrom: first.folder, batchSize, epochs: 2 });
    expect(more.steps).toHaveLength(left);
    expect(more).toMatchObject({ epoch: 2, examples: 2 * pairs.length });
    expect(more.steps[0]).toMatchObject({ step: 6, totalSteps: 5 + left });
    expect(more).toMatchObject({ planned: 5 + left, written: 5 + left });
  });

  it('says which option limits its steps', async () => {
    const first = await train({ batchSize: 8, epochs: 1, runName: 'limits' });
    const again = (more: object) => expect(train({ resumeFrom: first.folder, epochs: 1, ...more })).rejects;
    await again({}).toThrow(/is finished: .* To train it further, give more --epochs\.$/);
    await again({ maxSteps: 9 }).toThrow(/give more --epochs\.$/);
    await again({ maxSteps: 4, epochs: 2 }).toThrow(/is at step 5, and 4 steps .*: give a larger --max-steps\.$/);
    await again({ maxSteps: 5 }).toThrow(/give a larger --max-steps and more --epochs\.$/);
  });

  it('takes its place in the data once', async () => {
    const first = await train({ batchSize: 8, maxSteps: 2, runName: 'once' });
    const restore = vi.spyOn(StepBatches.prototype, 'restore');
    const more = await train({ resumeFrom: first.folder, maxSteps: 3 });
    expect([more.steps.map(({ step }) => step), restore.mock.calls.length]).toEqual([[3], 1]);
    restore.mockRestore();
  });

  it('refuses data that are not those of the checkpoint, unless told', async () => {
    const first = await train({ batchSize: 8, maxSteps: 2, runName: 'changed' });
    const changed = { resumeFrom: first.folder, dataset: pairs.slice(0, 30), maxSteps: 3 };
    await expect(train(changed)).rejects.toThrow(/not those that this run was trained on.*--allow-changed-data/);
    expect((await train({ ...changed, allowChangedData: true })).steps.map(({ step }) => step)).toEqual([3]);
  });

  it('refuses other held-out examples, too, unless told', async () => {
    const held = { evalSteps: 1, evalDataset: pairs.slice(0, 8) };
    const first = await train({ batchSize: 8, maxSteps: 2, runName: 'held', ...held });
    const same = await train({ resumeFrom: first.folder, maxSteps: 3, ...held });
    expect(same.steps.map(({ step }) => step)).toEqual([3]);
    const changed = { resumeFrom: first.folder, maxSteps: 4, ...held, evalDataset: pairs.slice(8, 16) };
    await expect(train(changed)).rejects.toThrow(/held-out examples are not those .*--allow-changed-data/);
    expect((await train({ ...changed, allowChangedData: true })).steps.map(({ step }) => step)).toEqual([4]);
  });
});
