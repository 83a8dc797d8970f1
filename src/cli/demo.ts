/**
 * `attune demo`: the whole story of post-training with the shipped tiny model (story.ts). Without that model, or with
 * `--engine`, the engine's own path alone: a small network learns which arm of two spirals a point belongs to.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { UserError } from '../errors.ts';
import { AdamW, Linear, Module } from '../nn/index.ts';
import type { Progress } from '../progress.ts';
import { dateTimeName } from '../runs/index.ts';
import { engineInfo, liveTensors, noGrad, packageRoot, scope, seed, type Tensor, tensor } from '../tensor/index.ts';
import { consoleProgress, duration } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

const STEPS = 400;
const TRAINING_POINTS = 1_000;
const TEST_POINTS = 500;

interface Options {
  engine?: boolean;
  model: string;
  tasks: string;
  minutes: string;
  outputDir: string;
}

/** Shipped with the package. */
const tinyModel = join(packageRoot, 'models', 'tiny');

export function register(program: Command): void {
  program
    .command('demo')
    .description('the whole story in minutes: data, a reward model, GRPO against it and against the verifier, a report')
    .option('--model <folder>', 'the model to start from', tinyModel)
    .option('--tasks <mixture>', 'the problems', 'number_sorting:1,spell_backward:1,propositional_logic:1')
    .option('--minutes <number>', 'time for all of it', '4.5')
    .option('--output-dir <folder>', 'where runs and report go', './attune-demo')
    .option('--engine', 'only the engine: a small network learns two spirals')
    .action(async (options: Options) => {
      if (options.engine || !existsSync(join(options.model, 'config.json'))) showSpirals();
      else await showStory(options);
    });
}

async function showStory(options: Options): Promise<void> {
  const minutes = Number(options.minutes);
  if (!(minutes > 0)) throw new UserError(`--minutes ${options.minutes}: expected a number above 0.`);
  using interrupt = onInterrupt(() => tell('\nstopping'));
  const started = performance.now();
  const { tellStory, whereNext } = await import('../workflows/story.ts');
  const { accuracy, proxyReward, report } = await tellStory({
    ...{ model: options.model, tasks: options.tasks, minutes },
    folder: join(options.outputDir, dateTimeName(new Date())),
    print: print,
    progress: consoleProgress(),
    signal: interrupt.signal,
  });
  const row = (name: string, key: keyof typeof accuracy) =>
    `${name.padEnd(32)}${`${(100 * accuracy[key]).toFixed(0)} %`.padStart(6)}${proxyReward[key].toFixed(2).padStart(15)}`;
  print(`
policy                           right   reward model   (held-out problems)
${row('start', 'start')}
${row('GRPO against the reward model', 'rewardModel')}
${row('GRPO against the verifier', 'verifier')}

The report, with curves and answers before and after: ${report}
It took ${duration((performance.now() - started) / 1000)}. Where to go next:
${whereNext.map((line) => `  ${line}`).join('\n')}`);
}

function showSpirals(): void {
  const { libtorch, threads } = engineInfo();
  print(
    `Two spirals, ${TRAINING_POINTS} points to learn from and ${TEST_POINTS} to test on; libtorch ${libtorch}, ${threads} threads.\n`,
  );
  const started = performance.now();
  const story = learnSpirals(consoleProgress());
  const seconds = (performance.now() - started) / 1000;
  const row = (name: string, loss: number, accuracy: number) =>
    `${name}  ${loss.toFixed(3).padStart(6)}  ${(accuracy * 100).toFixed(1).padStart(7)} %`;
  print(`
                loss   accuracy   (on points it has not seen)
${row('before      ', story.before.loss, story.before.accuracy)}
${row('after       ', story.after.loss, story.after.accuracy)}

What it learnt: # and . are the two arms as the network sees the plane, O and x are test points of each.

${story.picture}

${STEPS} steps in ${duration(seconds)}; tensors alive before and after: ${story.liveBefore} and ${story.liveAfter}.`);
}

interface Score {
  loss: number;
  accuracy: number;
}

export interface SpiralStory {
  before: Score;
  after: Score;
  picture: string;
  liveBefore: number;
  liveAfter: number;
}

class SpiralNet extends Module {
  first = new Linear(2, 64);
  second = new Linear(64, 64);
  head = new Linear(64, 1);

  /** The logit of belonging to arm 1. */
  forward(x: Tensor): Tensor {
    const hidden = this.second.forward(this.first.forward(x).tanh()).tanh();
    return this.head.forward(hidden).squeeze(-1);
  }
}

/** The same numbers at every call: the seed is fixed. */
export function learnSpirals(progress?: Progress): SpiralStory {
  const liveBefore = liveTensors();
  seed(7);
  const random = randomNumbers(7);
  const training = spirals(TRAINING_POINTS, random);
  const test = spirals(TEST_POINTS, random);
  const story = scope(() => {
    using net = new SpiralNet();
    const optimiser = new AdamW(net.namedParameters(), { lr: 0.01, weightDecay: 0.01 });
    const inputs = tensor(training.points, { shape: [TRAINING_POINTS, 2] });
    const labels = tensor(training.labels);
    const before = score(net, test);
    const task = progress?.start('training', STEPS, 'steps');
    for (let step = 0; step < STEPS; step++) {
      const loss = scope(() => {
        const value = crossEntropy(net.forward(inputs), labels);
        optimiser.zeroGrad();
        value.backward();
        optimiser.step();
        return value.item();
      });
      task?.advance(1, { loss });
    }
    task?.done();
    const result = { before, after: score(net, test), picture: draw(net, test) };
    optimiser.zeroGrad();
    optimiser.dispose();
    return result;
  });
  return { ...story, liveBefore, liveAfter: liveTensors() };
}

/** Binary cross-entropy from logits z: the mean of −log σ(z) + (1 − y)·z, which does not overflow. */
function crossEntropy(logits: Tensor, labels: Tensor): Tensor {
  return logits
    .logSigmoid()
    .neg()
    .add(logits.mul(labels.neg().add(1)))
    .mean();
}

interface Points {
  /** x and y in turn. */
  points: Float32Array;
  /** 0 or 1 for each. */
  labels: Float32Array;
}

/** Two arms, half a turn apart, each of one and a half turns, with a little noise. */
function spirals(count: number, random: () => number): Points {
  const points = new Float32Array(count * 2);
  const labels = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const arm = i % 2;
    const along = Math.sqrt(random());
    const angle = along * 3 * Math.PI + arm * Math.PI;
    points[2 * i] = along * Math.cos(angle) + (random() - 0.5) * 0.06;
    points[2 * i + 1] = along * Math.sin(angle) + (random() - 0.5) * 0.06;
    labels[i] = arm;
  }
  return { points, labels };
}

/** Park & Miller's generator: the demo's data must not depend on libtorch's version. */
function randomNumbers(start: number): () => number {
  let state = start;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function score(net: SpiralNet, { points, labels }: Points): Score {
  return scope(() =>
    noGrad(() => {
      const logits = net.forward(tensor(points, { shape: [labels.length, 2] }));
      const wanted = tensor(labels);
      const right = logits.gt(0).eq(wanted.gt(0)).to('float32').mean();
      return { loss: crossEntropy(logits, wanted).item(), accuracy: right.item() };
    }),
  );
}

const WIDTH = 61;
const HEIGHT = 27;
const EDGE = 1.15;

/** A character's cell is twice as high as wide, so the picture is about square on a terminal. */
function draw(net: SpiralNet, test: Points): string {
  const plane = new Float32Array(WIDTH * HEIGHT * 2);
  for (let row = 0; row < HEIGHT; row++) {
    for (let column = 0; column < WIDTH; column++) {
      const at = 2 * (row * WIDTH + column);
      plane[at] = ((column / (WIDTH - 1)) * 2 - 1) * EDGE;
      plane[at + 1] = (1 - (row / (HEIGHT - 1)) * 2) * EDGE;
    }
  }
  const logits = scope(() => noGrad(() => net.forward(tensor(plane, { shape: [WIDTH * HEIGHT, 2] })).numbers()));
  const cells: string[] = logits.map((logit) => (logit > 0 ? '.' : '#'));
  for (let i = 0; i < test.labels.length; i += 5) {
    const column = Math.round((((test.points[2 * i] ?? 0) / EDGE + 1) / 2) * (WIDTH - 1));
    const row = Math.round(((1 - (test.points[2 * i + 1] ?? 0) / EDGE) / 2) * (HEIGHT - 1));
    cells[row * WIDTH + column] = test.labels[i] === 1 ? 'x' : 'O';
  }
  const rows = Array.from(
    { length: HEIGHT },
    (_, row) => `    ${cells.slice(row * WIDTH, (row + 1) * WIDTH).join('')}`,
  );
  return rows.join('\n');
}
