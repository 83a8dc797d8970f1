/**
 * Over-optimisation, measured: DPO at several β and lengths of training. The implicit-reward margin keeps rising; the gold
 * accuracy (the verifier's) does not, and the KL to the start tells why. One picture.
 *
 *     npm run bench -- over-optimisation --model models/tiny --betas 0.1,0.3,1,3 --steps 10,25,50,100,200
 *
 * The course of each β lies under `--out`; one that is there is not run again.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { meanOf } from '../src/algorithms/index.ts';
import { grid, lineChart, toPng } from '../src/runs/index.ts';
import { trainPreference } from '../src/trainers/preference/preference.ts';
import type { Reading } from './run.ts';
import { type Figures, flagsOf, Measures, ownPairs } from './support/preference-measures.ts';

const defaults = {
  model: 'models/tiny',
  tasks: 'number_sorting:1,letter_counting:1,spell_backward:1',
  loss: 'dpo',
  betas: '0.1,0.3,1,3',
  steps: '10,25,50,100,200',
  batch: '16',
  prompts: '640',
  samples: '8',
  'held-out': '150',
  'max-new-tokens': '64',
  lr: '2e-4',
  warmup: '5',
  out: 'outputs/over-optimisation',
};

/** One batch's margin is noisy: a point shows the mean of this many steps. */
const marginSteps = 10;

interface Point extends Figures {
  beta: number;
  step: number;
  margin: number;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const flags = flagsOf(args, defaults);
  mkdirSync(flags.out, { recursive: true });
  const folder = mkdtempSync(join(tmpdir(), 'attune-over-optimisation-'));
  const points: Point[] = [];
  try {
    using measures = await Measures.open(flags);
    const before = { step: 0, margin: 0, ...(await measures.of(measures.start)) };
    const dataset = join(flags.out, 'pairs.jsonl');
    await ownPairs(flags, 1, dataset);
    for (const beta of flags.betas.split(',').map(Number)) {
      const file = join(flags.out, `beta-${beta}.json`);
      if (!existsSync(file)) {
        const course = [{ ...before, beta }, ...(await train(flags, { beta, dataset, folder, measures }))];
        writeFileSync(file, `${JSON.stringify(course, null, 2)}\n`);
      }
      const course = JSON.parse(readFileSync(file, 'utf8')) as Point[];
      points.push(...course);
      for (const { step, ...figures } of course) yield { name: `β ${beta}, step ${step}`, ...figures };
      writeFileSync(join(flags.out, 'over-optimisation.png'), await picture(points));
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function train(
  flags: typeof defaults,
  { beta, dataset, folder, measures }: { beta: number; dataset: string; folder: string; measures: Measures },
): Promise<Point[]> {
  const at = flags.steps.split(',').map(Number);
  using training = await trainPreference(
    {
      model: flags.model,
      dataset,
      loss: flags.loss,
      beta,
      seed: 1,
      maxSteps: Math.max(...at),
      epochs: 10_000,
      lr: Number(flags.lr),
      lrSchedule: 'constant',
      warmupSteps: Number(flags.warmup),
      batchSize: Number(flags.batch),
      gradAccum: 1,
      validationSplit: 0,
      precomputeRef: true,
      evalSteps: -1,
      saveSteps: -1,
      saveModel: false,
      reportTo: ['none'],
      outputDir: folder,
      runName: `beta-${beta}`,
    },
    { cache: false, run: { curves: false } },
  ).open();
  const points: Point[] = [];
  const margins: number[] = [];
  for await (const { step, metrics } of training) {
    margins.push(metrics['train/margin'] ?? Number.NaN);
    if (!at.includes(step)) continue;
    const margin = meanOf(margins.slice(-marginSteps));
    points.push({ beta, step, margin, ...(await measures.of(training.model)) });
  }
  return points;
}

function picture(points: readonly Point[]): Promise<Uint8Array> {
  const betas = [...new Set(points.map(({ beta }) => beta))];
  const chart = (title: string, xLabel: string, yLabel: string, x: keyof Point, y: keyof Point) =>
    lineChart({
      title,
      xLabel,
      yLabel,
      smooth: false,
      series: betas.map((beta) => {
        const own = points.filter((point) => point.beta === beta);
        return { name: `β ${beta}`, x: own.map((point) => point[x]), y: own.map((point) => point[y]) };
      }),
    });
  return toPng(
    grid(
      [
        chart('The margin rises with training…', 'step', 'implicit-reward margin', 'step', 'margin'),
        chart('…the gold accuracy need not', 'step', 'right, of sampled answers', 'step', 'sampled'),
        chart('Margin against gold', 'implicit-reward margin', 'right, of sampled answers', 'margin', 'sampled'),
        chart('Drift against gold', 'KL to the start, nats per response', 'right, of sampled answers', 'kl', 'sampled'),
      ],
      { title: 'Over-optimisation of a preference loss', columns: 2 },
    ),
  );
}
