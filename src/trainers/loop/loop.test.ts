import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type MlpOptions, type MlpTask, mlpTask } from '../../../tests/loop/mlp-task.ts';
import { soloWorld, type World } from '../../dist/world.ts';
import { findCheckpoint, listCheckpoints } from '../../runs/checkpoints.ts';
import { openRun } from '../../runs/open-run.ts';
import { createRun } from '../../runs/run.ts';
import { liveTensors } from '../../tensor/index.ts';
import { type LoopOptions, type TrainResult, type TrainStep, trainLoop } from './loop.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-loop-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const base: LoopOptions = { lr: 0.01, schedule: { kind: 'linear', warmupSteps: 3 }, maxGradNorm: 1 };

interface Outcome {
  task: MlpTask;
  steps: TrainStep[];
  result?: TrainResult;
  error?: Error;
}

async function train(taskOptions: MlpOptions, options: Partial<LoopOptions> = {}): Promise<Outcome> {
  const task = mlpTask({ microBatch: 4, ...taskOptions });
  const loop = trainLoop(task, { ...base, ...options });
  const steps: TrainStep[] = [];
  try {
    for (;;) {
      const { done, value } = await loop.next();
      if (done) return { task, steps, result: value };
      steps.push(value);
    }
  } catch (error) {
    return { task, steps, error: error as Error };
  }
}

const newRun = (runName = 'run') =>
  createRun({ command: 'test', outputDir: folder, runName, config: { a: 1 }, reportTo: [], curves: false });

/** Resumes the newest checkpoint of `run` and trains to the end. */
async function goOn(taskOptions: MlpOptions, options: Partial<LoopOptions> = {}): Promise<Outcome> {
  const found = await findCheckpoint(join(folder, 'run'));
  const run = await createRun({
    command: 'test',
    outputDir: folder,
    config: {},
    reportTo: [],
    curves: false,
    resume: { run: found.run, step: found.step },
  });
  return train(taskOptions, { ...options, run, resumeFrom: found.path });
}

describe('training', () => {
  it('learns, and follows the schedule', async () => {
    const { steps, result } = await train({ totalSteps: 200 });
    const mean = (from: number, to: number) =>
      steps.slice(from, to).reduce((sum, step) => sum + (step.metrics['train/loss'] ?? 0), 0) / (to - from);
    expect(mean(190, 200)).toBeLessThan(mean(0, 10) / 2);
    const rates = steps.slice(0, 4).map((step) => step.metrics['train/lr'] ?? 0);
    for (const [i, expected] of [0.01 / 3, 0.02 / 3, 0.01, 0.01].entries()) expect(rates[i]).toBeCloseTo(expected, 12);
    expect(result).toMatchObject({ ended: 'finished', step: 200, skipped: 0 });
    expect(steps[4]?.metrics).toMatchObject({ 'train/count': 8, 'train/examples': 40, 'train/epoch': 0 });
  });

  it('does not depend on how a step is split', async () => {
    const weights = async (microBatch: number) => {
      const task = mlpTask({ totalSteps: 10, microBatch });
      task.model.eval();
      for await (const _ of trainLoop(task, base));
      return task.weights();
    };
    const [whole, split] = [await weights(8), await weights(1)];
    for (const [i, value] of whole.entries()) expect(split[i]).toBeCloseTo(value, 5);
  });

  it('gives the same numbers for the same seed, whether it is evaluated or not', async () => {
    const first = await train({ totalSteps: 12 });
    const second = await train({ totalSteps: 12 }, { evalSteps: 1 });
    expect(second.task.weights()).toEqual(first.task.weights());
    expect(second.steps.every((step) => step.metrics['eval/loss'] !== undefined)).toBe(true);
  });

  it('frees what each step made', async () => {
    const task = mlpTask({ totalSteps: 20, microBatch: 2 });
    const counts: number[] = [];
    for await (const _ of trainLoop(task, base)) counts.push(liveTensors());
    // At most as many tensors as a step earlier. There may be fewer, because the garbage collector may free tensors of
    // earlier tests meanwhile.
    const grown = counts.slice(1).filter((count, i) => i > 0 && count > (counts[i] as number));
    expect(grown).toEqual([]);
  });
});

describe('stop and resume', () => {
  it('is bit-identical from any checkpoint, several updates a step included', async () => {
    const shape = { totalSteps: 12, updatesPerStep: 2 };
    const options = { evalSteps: 3, logSteps: 2 };
    const whole = await train(shape, { ...options, run: await newRun('whole') });
    await train(shape, { ...options, run: await newRun(), saveSteps: 1 });
    rmSync(join(folder, 'run', 'final'), { recursive: true });
    for (const step of [11, 7, 4]) {
      for (const { path, step: at } of listCheckpoints(join(folder, 'run')))
        if (at > step) rmSync(path, { recursive: true });
      const resumed = await goOn(shape, options);
      expect(resumed.steps[0]?.step).toBe(step + 1);
      expect(resumed.task.weights()).toEqual(whole.task.weights());
      const rows = (name: string) =>
        openRun(join(folder, name))
          .metrics()
          .map((row) => [row.step, row['train/loss'], row['eval/loss']]);
      expect(rows('run')).toEqual(rows('whole'));
    }
  });

  it('can be extended after its end, also where it was shorter than saveSteps', async () => {
    const whole = await train({ totalSteps: 9 }, { schedule: { kind: 'constant' } });
    const short = { schedule: { kind: 'constant' as const }, saveSteps: 100 };
    const first = await train({ totalSteps: 4 }, { ...short, run: await newRun() });
    expect(first.result?.checkpoint).toBe(join(folder, 'run', 'final'));
    expect(listCheckpoints(join(folder, 'run')).map(({ name }) => name)).toEqual(['step-4']);
    const longer = await goOn({ totalSteps: 9 }, short);
    expect(longer.steps.map(({ step }) => step)).toEqual([5, 6, 7, 8, 9]);
    expect(longer.task.weights()).toEqual(whole.task.weights());
  });

  it('notices that the data are others, and goes on with them only when told', async () => {
    const data = (dataFingerprint: string) => ({ totalSteps: 6, dataFingerprint });
    await train(data('a'), { run: await newRun(), saveSteps: 2 });
    rmSync(join(folder, 'run', 'step-6'), { recursive: true });
    const same = await goOn(data('a'));
    expect(same.steps[0]?.step).toBe(5);
    const told: string[] = [];
    const progress = { start: () => ({ advance: () => {}, done: (note?: string) => told.push(note ?? '') }) };
    const allowed = await goOn(data('b'), { allowChangedData: true, progress });
    expect(allowed.result?.ended).toBe('finished');
    expect(told[0]).toMatch(/not those that this run was trained on/);
    const other = await goOn(data('b'));
    expect(other.error?.message).toMatch(/not those that this run was trained on.*--allow-changed-data/);
    expect(other.steps).toEqual([]);
  });

  it('makes an evaluation that was owed once, however often it is interrupted after it', async () => {
    const options = { evalSteps: 2, saveSteps: 100 };
    const first = new AbortController();
    let calls = 0;
    // After the last micro-batch of step 2, so that its evaluation stays due.
    const onBackward = () => ++calls === 4 && first.abort();
    await train({ totalSteps: 6, onBackward }, { ...options, run: await newRun(), signal: first.signal });
    for (let i = 0; i < 2; i++) {
      const again = new AbortController();
      const evalLoss = () => {
        again.abort();
        return 1;
      };
      const { steps } = await goOn({ totalSteps: 6, evalLoss }, { ...options, signal: again.signal });
      expect(steps).toEqual([]);
    }
    await goOn({ totalSteps: 6 }, options);
    const rows = openRun(join(folder, 'run')).metrics();
    const evaluated = rows.filter((row) => row['eval/loss'] !== undefined).map(({ step }) => step);
    expect(evaluated).toEqual([2, 4, 6]);
  });

  it('saves at the step really reached when interrupted inside a step', async () => {
    const whole = await train({ totalSteps: 9 }, { evalSteps: 5 });
    const controller = new AbortController();
    let calls = 0;
    const cut = await train(
      // The second micro-batch of step 6 never runs.
      { totalSteps: 9, onBackward: () => ++calls === 11 && controller.abort() },
      { run: await newRun(), signal: controller.signal, evalSteps: 5 },
    );
    expect(cut.result).toMatchObject({ ended: 'interrupted', step: 5, checkpoint: join(folder, 'run', 'step-5') });
    expect(openRun(join(folder, 'run')).info?.status).toBe('interrupted');
    expect((await goOn({ totalSteps: 9 }, { evalSteps: 5 })).task.weights()).toEqual(whole.task.weights());
  });

  it('lets several ranks end together, once the first has saved', async () => {
    const run = await newRun();
    const seen: unknown[] = [];
    const meet = async () => void seen.push([openRun(run.folder).status, readdirSync(run.folder).includes('step-1')]);
    let asked = 0;
    const world: World = { ...soloWorld, size: 2, any: async () => ++asked > 1, meet };
    const { result } = await train({ totalSteps: 9 }, { run, world });
    expect(result).toMatchObject({ ended: 'interrupted', step: 1 });
    expect(seen).toEqual([['interrupted', true]]);
  });

  it('owes an evaluation that an interrupt put off', async () => {
    const controller = new AbortController();
    let calls = 0;
    const cut = await train(
      // The last micro-batch of step 5: the step completes, its evaluation does not run.
      { totalSteps: 9, onBackward: () => ++calls === 10 && controller.abort() },
      { run: await newRun(), signal: controller.signal, evalSteps: 5 },
    );
    expect(cut.result?.step).toBe(5);
    expect(cut.steps.at(-1)?.evaluated).toBe(false);
    await goOn({ totalSteps: 9 }, { evalSteps: 5 });
    expect(openRun(join(folder, 'run')).history()['eval/loss']?.step).toEqual([5, 9]);
  });

  it.each([4, 6])('breaks the evaluation of step %d off, and makes it when the run goes on', async (at) => {
    const options = { evalSteps: 2, saveSteps: 100 };
    const controller = new AbortController();
    const evalLoss = (step: number) => {
      if (step < at) return 1;
      controller.abort();
      throw new Error('no more');
    };
    const cut = await train(
      { totalSteps: 6, evalLoss },
      { ...options, run: await newRun(), signal: controller.signal },
    );
    expect(cut.result).toMatchObject({ ended: 'interrupted', step: at });
    expect(cut.steps.at(-1)).toMatchObject({ step: at, evaluated: false });
    const { result } = await goOn({ totalSteps: 6, evalLoss: () => 1 }, options);
    expect(result?.ended).toBe('finished');
    expect(openRun(join(folder, 'run')).history()['eval/loss']?.step).toEqual([2, 4, 6]);
  });

  it('saves when the consumer leaves its loop', async () => {
    const whole = await train({ totalSteps: 6 });
    for await (const step of trainLoop(mlpTask({ totalSteps: 6, microBatch: 4 }), { ...base, run: await newRun() }))
      if (step.step === 4) break;
    expect(listCheckpoints(join(folder, 'run')).map(({ step }) => step)).toEqual([4]);
    expect((await goOn({ totalSteps: 6 })).task.weights()).toEqual(whole.task.weights());
  });

  it.each([
    ['before the first update', { onStep: (step: number) => fail(step === 5) }],
    ['the backward pass', { onBackward: (step: number) => fail(step === 5) }],
    ['evaluation', { evalLoss: (step: number) => fail(step === 4) ?? 1 }],
  ])('saves after an exception in %s', async (_, faulty) => {
    const options = { evalSteps: 2 };
    const whole = await train({ totalSteps: 8 }, options);
    const crashed = await train({ totalSteps: 8, ...faulty }, { ...options, run: await newRun() });
    expect(crashed.error?.message).toBe('boom');
    expect(openRun(join(folder, 'run')).info).toMatchObject({ status: 'failed', reason: 'boom', step: 4 });
    expect(listCheckpoints(join(folder, 'run')).map(({ step }) => step)).toEqual([4]);
    expect((await goOn({ totalSteps: 8 }, options)).task.weights()).toEqual(whole.task.weights());
  });

  it('refuses to resume from a model alone', async () => {
    await train({ totalSteps: 1 }, { run: await newRun() });
    const { error } = await train({ totalSteps: 2 }, { resumeFrom: join(folder, 'run', 'final') });
    expect(error?.message).toMatch(/final holds a model, but neither optimiser nor trainer state/);
  });

  it('says when a checkpoint was cut between two updates of one step', async () => {
    let calls = 0;
    await train({ totalSteps: 4, updatesPerStep: 2, onBackward: () => fail(++calls === 11) }, { run: await newRun() });
    const state = JSON.parse(readFileSync(join(folder, 'run', 'step-2', 'trainer_state.json'), 'utf8'));
    expect(state).toMatchObject({ step: 2, inexact: true });
  });
});

function fail(when: boolean): undefined {
  if (when) throw new Error('boom');
}

it('gives the same weights where the update is started before the norm is known', async () => {
  const waits = await train({ totalSteps: 12 });
  const ahead = await train({ totalSteps: 12, scalesOnDevice: true });
  // the two sum the squares in different orders
  const close = (values: number[]) => values.map((value) => expect.closeTo(value, 6));
  expect(ahead.task.weights()).toEqual(close(waits.task.weights()));
  for (const [i, { train: metrics }] of waits.steps.entries()) {
    const { step_time: _, ...values } = metrics;
    const expected = Object.entries(values).map(([name, value]) => [name, expect.closeTo(value, 5)]);
    expect(ahead.steps[i]?.train).toMatchObject(Object.fromEntries(expected));
  }
  expect(waits.steps.some(({ train: metrics }) => metrics.grad_clipped === 1)).toBe(true);
  expect(waits.steps.some(({ train: metrics }) => metrics.grad_clipped === 0)).toBe(true);
});

describe.each([false, true])('guard against non-finite numbers, decided on the device: %s', (scalesOnDevice) => {
  it('leaves the update out, counts it, and goes on', async () => {
    let before: number[] = [];
    let after: number[] = [];
    const poison = (step: number) => (step === 3 ? Number.NaN : 1);
    const task = mlpTask({ totalSteps: 6, microBatch: 4, scalesOnDevice, poison });
    const skipped: boolean[] = [];
    for await (const step of trainLoop(task, base)) {
      if (step.step === 2) before = task.weights();
      if (step.step === 3) after = task.weights();
      skipped.push(step.skipped);
    }
    expect(after).toEqual(before);
    expect(skipped).toEqual([false, false, true, false, false, false]);
    expect(task.weights().every(Number.isFinite)).toBe(true);
    expect(task.optimizer.steps).toBe(5);
  });

  it('stops after several in a row and gives the cause', async () => {
    const { error, steps } = await train(
      { totalSteps: 20, scalesOnDevice, poison: (step) => (step > 4 ? Number.POSITIVE_INFINITY : 1) },
      { maxSkippedSteps: 3 },
    );
    expect(steps.length).toBe(6);
    expect(error?.message).toMatch(/3 updates in a row .*step 7: loss Infinity.*lower learning rate/);
  });
});

describe('cadence', () => {
  it('evaluates, saves and logs when asked, and keeps few checkpoints', async () => {
    const { steps, result } = await train(
      { totalSteps: 10 },
      { run: await newRun(), evalSteps: 4, saveSteps: 3, logSteps: 2, saveTotalLimit: 2, config: { lr: 1 } },
    );
    expect(steps.filter((step) => step.evaluated).map((step) => step.step)).toEqual([4, 8, 10]);
    expect(steps.filter((step) => step.checkpoint).map((step) => step.step)).toEqual([3, 6, 9]);
    expect(listCheckpoints(join(folder, 'run')).map(({ step }) => step)).toEqual([9, 10]);
    expect(
      openRun(join(folder, 'run'))
        .metrics()
        .map((row) => row.step),
    ).toEqual([2, 4, 6, 8, 10]);
    expect(result?.checkpoint).toBe(join(folder, 'run', 'final'));
    expect(readdirSync(join(folder, 'run', 'step-9')).sort()).toEqual([
      'manifest.json',
      'model.safetensors',
      'optimizer.safetensors',
      'train_config.json',
      'trainer_state.json',
    ]);
    expect(readdirSync(join(folder, 'run', 'final')).sort()).toEqual([
      'manifest.json',
      'model.safetensors',
      'train_config.json',
    ]);
  });

  it('keeps the best model, stops early, and ends with the best weights', async () => {
    const losses = [5, 3, 4, 3.5, 6, 1];
    const best: number[][] = [];
    const task = mlpTask({ totalSteps: 6, microBatch: 4, evalLoss: (step) => losses[step - 1] ?? 0 });
    const options: LoopOptions = {
      ...base,
      run: await newRun(),
      evalSteps: 1,
      best: { metric: 'eval/loss', patience: 3, loadAtEnd: true },
    };
    const loop = trainLoop(task, options);
    let result: TrainResult | undefined;
    for (;;) {
      const { done, value } = await loop.next();
      if (done) {
        result = value;
        break;
      }
      if (value.improved) best.push(task.weights());
    }
    expect(best.length).toBe(2);
    expect(result).toMatchObject({ ended: 'early-stopping', step: 5, best: { value: 3, step: 2 } });
    expect(task.weights()).toEqual(best[1]);
    expect(existsSync(join(folder, 'run', 'best_model', 'model.safetensors'))).toBe(true);
  });

  it('refuses to choose by a metric that evaluation does not give', async () => {
    const { error } = await train({ totalSteps: 2 }, { evalSteps: 1, best: { metric: 'eval/accuracy' } });
    expect(error?.message).toMatch(/eval\/accuracy: evaluation does not give it\. It gives: eval\/loss/);
  });

  it('tells progress', async () => {
    const told: unknown[] = [];
    const progress = {
      start: (...args: unknown[]) => {
        told.push(args);
        return {
          advance: (n?: number, values?: object) => told.push([n, Object.keys(values ?? {})]),
          done: () => told.push('done'),
        };
      },
    };
    await train({ totalSteps: 2 }, { progress: progress as unknown as LoopOptions['progress'] });
    expect(told).toEqual([['training', 2, 'steps', 0], [1, ['loss', 'lr']], [1, ['loss', 'lr']], 'done']);
  });
});
