/** A small regression task for the loop's tests: dropout and shuffling make every step depend on all saved state. */
import { join } from 'node:path';
import { AdamW, Linear, Module } from '../../src/nn/index.ts';
import {
  dropout,
  noGrad,
  openSafetensors,
  scope,
  seed,
  type Tensor,
  tensor,
  writeSafetensors,
} from '../../src/tensor/index.ts';
import type { TrainTask } from '../../src/trainers/loop/loop.ts';

class Mlp extends Module {
  up = new Linear(4, 16);
  down = new Linear(16, 1);
  forward(x: Tensor): Tensor {
    return this.down.forward(dropout(this.up.forward(x).tanh(), 0.1, this.training));
  }
}

interface Batch {
  inputs: number[][];
  targets: number[];
}

export interface MlpTask extends TrainTask {
  readonly model: Mlp;
  readonly optimizer: AdamW;
  weights(): number[];
}

export interface MlpOptions {
  totalSteps: number;
  /** How each step's 8 examples are split. */
  microBatch?: number;
  /** Called as each step begins: a place for tests to fail, wait or abort. */
  onStep?: (step: number) => void | Promise<void>;
  onBackward?: (step: number) => void;
  evalLoss?: (step: number) => number;
  /** Multiplies the loss of a step, to make it non-finite. */
  poison?: (step: number) => number;
  updatesPerStep?: number;
  /** The update is started before the norm is known, as on CUDA. */
  scalesOnDevice?: boolean;
  dataFingerprint?: string;
}

const examplesPerStep = 8;

export function mlpTask(options: MlpOptions): MlpTask {
  seed(3);
  const model = new Mlp();
  const { scalesOnDevice = false } = options;
  const optimizer = new (class extends AdamW {
    override get scalesOnDevice(): boolean {
      return scalesOnDevice;
    }
  })(model.namedParameters(), { lr: 0.01, weightDecay: 0.01 });
  // A generator of the task's own stands for a data order that must be resumed at its position.
  let position = 12345;
  const random = () => {
    position = (position * 48271) % 2147483647;
    return position / 2147483647;
  };
  const drawBatch = (size: number): Batch => {
    const inputs = Array.from({ length: size }, () => Array.from({ length: 4 }, () => random() * 2 - 1));
    return { inputs, targets: inputs.map(([a = 0, b = 0, c = 0]) => a * b + c) };
  };
  const backward = (batch: Batch, step: number) => {
    options.onBackward?.(step);
    const error = model.forward(tensor(batch.inputs)).reshape(-1).sub(tensor(batch.targets));
    const loss = error
      .mul(error)
      .sum()
      .div(examplesPerStep)
      .mul(options.poison?.(step) ?? 1);
    loss.backward();
    return { loss, count: batch.targets.length };
  };
  const file = 'model.safetensors';
  return {
    model,
    optimizer,
    totalSteps: options.totalSteps,
    dataFingerprint: options.dataFingerprint,
    async step(number, { update }) {
      await options.onStep?.(number);
      const size = options.microBatch ?? examplesPerStep;
      const updates = Array.from({ length: options.updatesPerStep ?? 1 }, () =>
        Array.from({ length: examplesPerStep / size }, () => drawBatch(size)),
      );
      for (const batches of updates) await update(batches, (batch) => backward(batch, number));
      return { examples: examplesPerStep, epoch: Math.floor(number / 10) };
    },
    evaluate: (step) => {
      if (options.evalLoss) return { loss: options.evalLoss(step) };
      const loss = scope(() =>
        noGrad(() => {
          const { inputs, targets } = { inputs: [[0.5, 0.5, 0.5, 0.5]], targets: [0.75] };
          return model.forward(tensor(inputs)).reshape(-1).sub(tensor(targets)).abs().item();
        }),
      );
      return { loss };
    },
    saveModel: (folder) => writeSafetensors(join(folder, file), model.state()),
    loadModel(folder) {
      using saved = openSafetensors(join(folder, file));
      scope(() => model.loadState(new Map(saved.names.map((name) => [name, saved.tensor(name)]))));
    },
    state: () => ({ position }),
    restore(state) {
      position = (state as { position: number }).position;
    },
    weights: () => model.parameters().flatMap((parameter) => parameter.detach().numbers()),
  };
}
