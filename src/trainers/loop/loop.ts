/**
 * The loop that every trainer shares: gradient accumulation, clipping, the schedule, logging, evaluation, checkpoints,
 * the best model, early stopping, non-finite updates, interrupts, crashes and exact resumption. A trainer supplies a
 * `TrainTask`.
 *
 *     for await (const step of trainLoop(task, { run, lr: 1e-5, saveSteps: 100 })) console.log(step.step, step.metrics);
 *
 * A resumed run gives the same numbers as an uninterrupted one: a checkpoint holds the state between two steps, and an
 * interrupted step's use of random generators and data is undone.
 */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { exactAccuracies, meanMetrics } from '../../algorithms/metrics.ts';
import { soloWorld, type World } from '../../dist/world.ts';
import { AttuneError } from '../../errors.ts';
import { scheduleFactor } from '../../nn/index.ts';
import type { ProgressTask } from '../../progress.ts';
import { DiskFullError, pruneCheckpoints, saveCheckpoint } from '../../runs/checkpoints.ts';
import { noteBest } from './best.ts';
import { divergedError, endsDiverged, nonFiniteError, watchLoss } from './divergence.ts';
import { checkUnfinished } from './finished.ts';
import { addToWindow, windowMeans } from './log-window.ts';
import { prefixed, under } from './metric-names.ts';
import { takePlace } from './same-data.ts';
import { captureRng, configFile, freshState, type LoopState, optimizerFile, restoreRng, stateFile } from './state.ts';
import type { LoopOptions, TrainResult, TrainStep, TrainTask, Update } from './task.ts';
import { GradientSums, type UpdateWork } from './update.ts';
import { wholeWeights } from './whole-weights.ts';

export type * from './task.ts';

export async function* trainLoop(task: TrainTask, options: LoopOptions): AsyncGenerator<TrainStep, TrainResult, void> {
  const loop = new Loop(task, options);
  if (options.resumeFrom) await loop.resume(options.resumeFrom);
  const bar = options.progress?.start(options.label ?? 'training', task.totalSteps, 'steps', loop.state.step);
  let settled = false;
  try {
    if (loop.state.evaluationDue) await loop.evaluateLate();
    while (loop.state.step < task.totalSteps && !(await loop.shouldStop())) {
      const step = await loop.step();
      if (step === undefined) break;
      report(bar, step);
      yield step;
      await nextTurn();
    }
    // A run that ends while diverging fails, and its final model is not written.
    if (!loop.aborted && endsDiverged(loop.state)) throw divergedError(loop.state, options.lr);
    settled = true;
    return await loop.end();
  } catch (error) {
    settled = true;
    await loop.crash(error as Error);
    throw error;
  } finally {
    // The consumer left its `for await`, which counts as an interrupt.
    if (!settled) await loop.interrupt();
    bar?.done();
  }
}

/** A policy's loss does not show whether it learns, so the bar shows its KL to the teacher or its reward instead. */
function report(bar: ProgressTask | undefined, { metrics }: TrainStep): void {
  const first = ['teacher_kl', 'reward'].find((name) => metrics[`train/${name}`] !== undefined) ?? 'loss';
  const values = [first, 'accuracy', 'lr']
    .map((name) => [name, metrics[`train/${name}`]])
    .filter(([, value]) => value !== undefined);
  bar?.advance(1, Object.fromEntries(values));
}

class Interrupted extends AttuneError {
  override name = 'Interrupted';
}

class Loop {
  state: LoopState = freshState();
  readonly #task: TrainTask;
  readonly #options: LoopOptions;
  readonly #world: World;
  readonly #gradients: GradientSums;
  /** With several ranks: whether any of them was asked to stop. The ranks agree on this between steps. */
  #agreedToStop = false;
  #inStep = false;
  /** An interrupt cancelled an evaluation. */
  #brokeOff = false;
  #updatesApplied = 0;
  #skippedBefore = { skipped: 0, skippedInRow: 0 };
  #savedStep = -1;
  #lastSaved: string | undefined;
  #resumedFrom: string | undefined;
  #lastTold = 0;

  constructor(task: TrainTask, options: LoopOptions) {
    this.#task = task;
    this.#options = options;
    this.#world = options.world ?? soloWorld;
    const { exact = false, seed, worksAhead } = options;
    if (task.decoder !== undefined) task.decoder.residence = task.optimizer.weights ?? null;
    this.#gradients = new GradientSums({
      optimizer: task.optimizer,
      decoder: task.decoder,
      world: this.#world,
      exact,
      seed,
      worksAhead,
    });
  }

  /** Whether an interrupt was requested. A single rank sees it at once; several agree on it between steps. */
  get aborted(): boolean {
    return this.#world.size === 1 ? Boolean(this.#options.signal?.aborted) : this.#agreedToStop;
  }

  async shouldStop(): Promise<boolean> {
    const patience = this.#options.best?.patience;
    if (this.#world.size > 1) this.#agreedToStop = await this.#world.any(Boolean(this.#options.signal?.aborted));
    return this.aborted || (patience !== undefined && patience > 0 && this.state.sinceBest >= patience);
  }

  async resume(path: string): Promise<void> {
    const state = this.#options.place ?? (await takePlace(path, this.#task, this.#options));
    await this.#task.loadModel(path);
    await this.#task.loadExtras?.(path);
    this.#task.optimizer.load(join(path, optimizerFile));
    checkUnfinished(path, state, this.#task, this.#options.run);
    restoreRng(state.rng);
    this.state = state;
    this.#resumedFrom = path;
    this.#lastSaved = path;
    this.#savedStep = state.step;
  }

  /** Runs one step. Returns undefined if an interrupt cancelled it. */
  async step(): Promise<TrainStep | undefined> {
    const { state } = this;
    this.#remember();
    this.#inStep = true;
    this.#updatesApplied = 0;
    const number = state.step + 1;
    const started = performance.now();
    let trained: { metrics: Record<string, number>; skipped: boolean; epoch: number; examples: number };
    try {
      trained = await this.#train(number);
    } catch (error) {
      if (!(error instanceof Interrupted) && !(this.aborted && (error as Error).name === 'AbortError')) throw error;
      if (this.#updatesApplied > 0) state.inexact = true;
      await this.#forget();
      return undefined;
    }
    state.step = number;
    state.examples += trained.examples;
    if (this.#task.lossTellsFit) watchLoss(state, trained.metrics, this.#task.optimizer.lr);
    if ((state.diverging ?? 0) >= (this.#options.maxSkippedSteps ?? 5)) throw divergedError(state, this.#options.lr);
    this.#inStep = false;
    delete state.inexact;
    const metrics: Record<string, number> = {
      ...prefixed('train/', trained.metrics),
      'train/epoch': trained.epoch,
      'train/examples': state.examples,
      'train/step_time': (performance.now() - started) / 1000,
    };
    const isLast = number === this.#task.totalSteps;
    state.evaluationDue = this.#task.evaluate !== undefined && due(this.#options.evalSteps, number, isLast);
    const improved = state.evaluationDue && !this.aborted ? await this.#evaluate(metrics) : undefined;
    const evaluated = improved !== undefined;
    this.#log(metrics, isLast || evaluated);
    const checkpoint = due(this.#options.saveSteps, number, false) ? await this.#save() : undefined;
    return {
      step: number,
      totalSteps: this.#task.totalSteps,
      epoch: trained.epoch,
      metrics,
      train: under('train/', metrics),
      ...(evaluated ? { eval: under('eval/', metrics) } : {}),
      skipped: trained.skipped,
      evaluated,
      improved: improved ?? false,
      checkpoint,
    };
  }

  /** Runs the evaluation that an interrupt left due. */
  async evaluateLate(): Promise<void> {
    const metrics: Record<string, number> = {};
    if ((await this.#evaluate(metrics)) === undefined) return;
    this.#options.run?.metrics.row(this.state.step, metrics);
  }

  async end(): Promise<TrainResult> {
    const { state } = this;
    if (this.aborted && (state.step < this.#task.totalSteps || this.#brokeOff)) return this.interrupt();
    const { run, best, saveFinal, saveSteps = 0 } = this.#options;
    // A checkpoint of the last step lets the run be extended, because final/ has no optimiser state. It is written
    // before an evaluation that is still due, so that a run resumed from it evaluates again.
    if (saveSteps > 0 && saveFinal !== false) await this.#save();
    if (state.evaluationDue) await this.evaluateLate();
    if (this.#brokeOff) return this.interrupt();
    // Callers that use the model afterwards need its whole weights.
    await wholeWeights(this.#task);
    if (best?.loadAtEnd && state.best && run && state.best.step !== state.step)
      await this.#task.loadModel(run.path('best_model'));
    let checkpoint = this.#lastSaved;
    if (run && saveFinal !== false) {
      await run.flush();
      checkpoint = await saveCheckpoint(run.folder, 'final', {
        step: state.step,
        write: (folder) => this.#task.saveModel(folder),
        json: this.#configFile(),
      });
    }
    run?.reached(state.step);
    await run?.finish('finished');
    const ended = state.step < this.#task.totalSteps ? 'early-stopping' : 'finished';
    return { step: state.step, ended, best: state.best, checkpoint, skipped: state.skipped };
  }

  async interrupt(): Promise<TrainResult> {
    const checkpoint = await this.#save();
    await this.#options.run?.finish('interrupted');
    // A launcher may end all ranks as soon as one has ended, so they wait here until rank 0 has saved.
    if (this.#agreedToStop) await this.#world.meet('interrupted');
    return {
      step: this.state.step,
      ended: 'interrupted',
      best: this.state.best,
      checkpoint,
      skipped: this.state.skipped,
    };
  }

  /** Saves a checkpoint of the last completed step after an error. A failure to save must not hide the error. */
  async crash(error: Error): Promise<void> {
    const { run } = this.#options;
    try {
      // Ranks that failed may be in different states. Several ranks therefore resume from the last checkpoint.
      if (!(error instanceof DiskFullError) && this.state.step > 0 && this.#world.size === 1) {
        if (this.#inStep) {
          if (this.#updatesApplied > 0) this.state.inexact = true;
          await this.#forget();
        }
        await this.#save();
      }
      await run?.finish('failed', error.message);
    } catch (second) {
      error.message += `\n(No checkpoint could be written after it: ${(second as Error).message})`;
    }
  }

  /** Stores the state before a step, to undo the step if it is interrupted. */
  #remember(): void {
    this.state.rng = captureRng(this.#task.optimizer.parameters);
    this.state.task = structuredClone(this.#task.state());
    this.state.data = this.#task.dataFingerprint;
    // Evaluations may be off for a while. Later ones are still compared with earlier ones, so the fingerprint is kept.
    this.state.heldOut = this.#task.heldOutFingerprint ?? this.state.heldOut;
    this.#skippedBefore = { skipped: this.state.skipped, skippedInRow: this.state.skippedInRow };
  }

  async #forget(): Promise<void> {
    this.#task.optimizer.zeroGrad();
    await this.#task.restore(structuredClone(this.state.task));
    restoreRng(this.state.rng);
    Object.assign(this.state, this.#skippedBefore);
    this.#inStep = false;
  }

  async #train(number: number) {
    const { optimizer, totalSteps } = this.#task;
    const { lr, schedule } = this.#options;
    const signal = this.#ownSignal;
    optimizer.lr = lr * scheduleFactor(number - 1, { kind: 'constant', ...schedule, totalSteps });
    const updates: Record<string, number>[] = [];
    let skipped = false;
    const update: Update = async (batches, backward, { cost = () => 1, ahead, decisions } = {}) => {
      const work = { batches, backward, cost, ahead, key: [number, updates.length], check: this.#check };
      const { metrics: summed, finite } = await this.#update(number, work);
      const metrics = exactAccuracies(summed, decisions);
      skipped ||= !finite;
      updates.push(metrics);
      return metrics;
    };
    const whole = () => wholeWeights(this.#task);
    const { metrics: own, examples, epoch } = await this.#task.step(number, { update, wholeWeights: whole, signal });
    const metrics = { ...own, ...meanMetrics(updates), lr: optimizer.lr, skipped_steps: this.state.skipped };
    return { metrics, skipped, epoch, examples };
  }

  /** A step can be interrupted only before its first update. */
  readonly #check = (): void => {
    if (this.aborted && this.#updatesApplied === 0) throw new Interrupted('interrupted');
  };

  async #update<Batch>(number: number, work: UpdateWork<Batch>) {
    const { optimizer } = this.#task;
    const { maxGradNorm = 0 } = this.#options;
    const { metrics: summed, norm, finite } = await this.#gradients.update(work, maxGradNorm);
    if (finite) {
      this.#updatesApplied++;
      this.state.skippedInRow = 0;
    } else {
      this.#skip(number, summed.loss ?? Number.NaN, norm);
    }
    optimizer.zeroGrad();
    const metrics = { ...summed, grad_norm: norm, grad_clipped: maxGradNorm > 0 && norm > maxGradNorm ? 1 : 0 };
    return { metrics, finite };
  }

  #skip(number: number, loss: number, norm: number): void {
    const { state } = this;
    state.skipped++;
    state.skippedInRow++;
    const limit = this.#options.maxSkippedSteps ?? 5;
    if (state.skippedInRow < limit) return;
    throw nonFiniteError({ step: number, inRow: limit, loss, norm, lr: this.#task.optimizer.lr });
  }

  /** A rank that stopped by itself would leave the others waiting. */
  get #ownSignal(): AbortSignal | undefined {
    return this.#world.size === 1 ? this.#options.signal : undefined;
  }

  /** Whether the model is the best so far. undefined if an interrupt cancelled the evaluation, which then stays due. */
  async #evaluate(metrics: Record<string, number>): Promise<boolean | undefined> {
    const { state } = this;
    const signal = this.#ownSignal;
    const rng = captureRng(this.#task.optimizer.parameters);
    let evaluated: Record<string, number>;
    await wholeWeights(this.#task);
    try {
      evaluated = (await this.#task.evaluate?.(state.step, signal)) ?? {};
    } catch (error) {
      if (!signal?.aborted) throw error;
      this.#brokeOff = true;
      return undefined;
    } finally {
      restoreRng(rng);
    }
    Object.assign(metrics, prefixed('eval/', evaluated));
    state.evaluationDue = false;
    return this.#judge(metrics);
  }

  async #judge(metrics: Record<string, number>): Promise<boolean> {
    const { best, run } = this.#options;
    if (!best || !noteBest(this.state, best, metrics)) return false;
    if (run)
      await saveCheckpoint(run.folder, 'best_model', {
        step: this.state.step,
        write: (folder) => this.#task.saveModel(folder),
        json: this.#configFile(),
      });
    return true;
  }

  /** Writes a row of metrics, or adds them to the next row. */
  #log(metrics: Record<string, number>, force: boolean): void {
    const { run, logSteps = 1 } = this.#options;
    const { window, step, examples } = this.state;
    addToWindow(window, metrics);
    if (step % Math.max(1, logSteps) !== 0 && !force) return;
    run?.metrics.row(step, { ...metrics, ...windowMeans(window) }, examples);
    this.state.window = { count: 0, sums: {} };
    if (performance.now() - this.#lastTold > 1000) {
      run?.reached(step);
      this.#lastTold = performance.now();
    }
  }

  async #save(): Promise<string | undefined> {
    const { run, saveTotalLimit, checkpointName = (step) => `step-${step}` } = this.#options;
    const { state } = this;
    if (state.step === this.#savedStep) return this.#lastSaved;
    await wholeWeights(this.#task);
    if (!run) {
      this.#savedStep = state.step;
      // Ranks that do not write the checkpoint still contribute their part of a sharded optimiser's state.
      return void (await this.#task.optimizer.save(undefined));
    }
    this.#remember();
    await run.flush();
    const path = await saveCheckpoint(run.folder, checkpointName(state.step), {
      step: state.step,
      write: async (folder) => {
        await this.#task.saveModel(folder);
        await this.#task.saveExtras?.(folder);
        await this.#task.optimizer.save(join(folder, optimizerFile));
      },
      json: { [stateFile]: { ...state, cwd: process.cwd() }, ...this.#configFile() },
    });
    this.#savedStep = state.step;
    this.#lastSaved = path;
    run.reached(state.step);
    const best = state.best ? [join(run.folder, checkpointName(state.best.step))] : [];
    pruneCheckpoints(run.folder, saveTotalLimit, [...best, ...(this.#resumedFrom ? [this.#resumedFrom] : [])]);
    return path;
  }

  #configFile(): Record<string, unknown> {
    return this.#options.config ? { [configFile]: this.#options.config } : {};
  }
}

const due = (every: number | undefined, step: number, isLast: boolean) =>
  every !== undefined && every > 0 && (step % every === 0 || isLast);
